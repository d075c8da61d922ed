"""Counts how often something was done, and how long it took, for the figures of a coordinator."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from cluster.domain.figures import Spent


class Stopwatch:
    def __init__(self) -> None:
        self._lock, self._times, self._seconds = threading.Lock(), 0, 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                self._times += 1
                self._seconds += time.perf_counter() - begun

    def spent(self) -> Spent:
        return Spent(times=self._times, seconds=self._seconds)
