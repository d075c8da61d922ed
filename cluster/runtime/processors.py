"""How many CPUs there are for this process: a container may have less time than its machine has
processors."""

from __future__ import annotations

import os
from pathlib import Path

# Of a container, how much time of processors it has in how much time: the second version of control
# groups, and the first.
QUOTAS = (
    (Path("/sys/fs/cgroup/cpu.max"),),
    (Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")),
)


def cpus() -> int:
    """One at least."""
    found = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    for files in QUOTAS:
        said = " ".join(path.read_text() for path in files if path.exists()).split()
        if len(said) == 2 and said[0].isdecimal():  # "max", or -1: none
            found = min(found, max(1, int(said[0]) // int(said[1])))
    return found
