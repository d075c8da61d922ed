"""Checks whether the cluster of a home lives. What follows if it does not is in `restart.py`."""

from __future__ import annotations

import contextlib
import socket
import threading

import ray
from ray.exceptions import RayError

from cluster.runtime.connection import coordinator

PERIOD = 1.0  # seconds between two checks
TOUCH_SECONDS = 5.0


def lost(gcs: bool, raylet: bool, coordinator: bool) -> str | None:
    """The first missing part that the cluster cannot continue without; a coordinator that Ray is
    restarting, which it does for ever, counts as living."""
    if not gcs:
        return "Ray's control service (GCS)"
    if not raylet:
        return "Ray's process of this node (raylet)"
    return None if coordinator else "the coordinator"


class Watch:
    """Checks the cluster that this process is connected to.

    The ports of Ray's processes show at once when one is gone; Ray itself would wait for a minute.
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
        """Stop checking. Called before Ray is shut down: a later call would start Ray again."""
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        """Check the coordinator, in a thread: a call to a lost GCS does not return."""
        while self._coordinator and not self._ended.wait(PERIOD):
            with contextlib.suppress(RayError):  # the check of the GCS's port says more
                try:
                    coordinator()
                except ValueError:  # it does not exist
                    self._coordinator = False


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=TOUCH_SECONDS).close()
    except OSError:
        return False
    return True
