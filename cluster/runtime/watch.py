"""Whether the cluster of a home lives. What follows when it does not: `again.py`."""

from __future__ import annotations

import contextlib
import socket
import threading

import ray
from ray.exceptions import RayError

from cluster.runtime.connection import coordinator

PERIOD = 1.0  # seconds between two looks
TOUCH_SECONDS = 5.0


def lost(gcs: bool, raylet: bool, coordinator: bool) -> str | None:
    """What the cluster cannot go on without, of what lives; a coordinator does also while Ray
    restarts it, which it does for ever."""
    if not gcs:
        return "Ray's control service (GCS)"
    if not raylet:
        return "Ray's process of this node (raylet)"
    return None if coordinator else "the coordinator"


class Watch:
    """Looks at the cluster that this process is connected to.

    The ports of Ray's processes tell at once when one is gone; Ray itself would wait for a minute.
    """

    def __init__(self) -> None:
        context = ray.get_runtime_context()
        own = next(node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
        self._gcs = context.gcs_address
        self._raylet = f"{own['NodeManagerAddress']}:{own['NodeManagerPort']}"
        self._coordinator = True
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)
        self._thread.start()

    def lost(self) -> str | None:
        return lost(_listens(self._gcs), _listens(self._raylet), self._coordinator)

    def end(self) -> None:
        """Before Ray is shut down: a call to it would start it again."""
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        """In a thread: a call to a GCS that was lost does not return."""
        while self._coordinator and not self._ended.wait(PERIOD):
            with contextlib.suppress(RayError):  # of a GCS, whose port tells more
                try:
                    coordinator()
                except ValueError:  # there is none
                    self._coordinator = False


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=TOUCH_SECONDS).close()
    except OSError:
        return False
    return True
