"""How long the coordinator's lock is held each time, and by which of its methods."""

from __future__ import annotations

import sys
import time
from types import FrameType
from typing import NamedTuple

from cluster.coordinator.lock import Lock


class Hold(NamedTuple):
    """One time under the lock: milliseconds of CPU and of wall clock, which includes waiting, and
    the method."""

    cpu: float
    clock: float
    method: str


class Held(Lock):
    """Records how long it is held."""

    def __init__(self) -> None:
        super().__init__()
        self._depth, self._since, self._method = 0, (0.0, 0.0), ""
        self.times = list[Hold]()

    def __enter__(self) -> None:
        super().__enter__()
        if self._depth == 0:
            self._method = _public(sys._getframe(1))
            self._since = time.thread_time(), time.perf_counter()
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            busy, begun = self._since
            cpu, clock = time.thread_time() - busy, time.perf_counter() - begun
            self.times.append(Hold(1000 * cpu, 1000 * clock, self._method))
        super().__exit__(*error)


def _public(frame: FrameType) -> str:
    """The public method that was called, above any private ones."""
    while frame.f_code.co_name.startswith("_") and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_name
