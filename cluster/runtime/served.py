"""Which cluster serves a home, read from the home's files before any process is called."""

from __future__ import annotations

from cluster.storage.home import Home, Running
from tacl.errors import ClusterNotRunning


def running(home: Home) -> Running:
    """The cluster that serves a home. Raises ClusterNotRunning, also if there is no home."""
    found = home.running()
    if found is None:
        home.founded()
        raise ClusterNotRunning(f"no cluster serves {home.path}; start it: {home.command('up')}")
    if found.lost is not None:
        raise ClusterNotRunning(
            f"the cluster of {home.path} is being started again ({found.lost}); what was "
            f"accepted goes on then. See {home.logs}."
        )
    return found
