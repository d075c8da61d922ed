"""The lock that requests and `tick` share; `waiting` measures the time spent waiting for it."""

from __future__ import annotations

import threading

from cluster.registry.stopwatch import Stopwatch


class Lock:
    """A reentrant lock that measures how long threads wait for it."""

    def __init__(self) -> None:
        self._lock, self.waiting = threading.RLock(), Stopwatch()

    def __enter__(self) -> None:
        with self.waiting.running():
            self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()
