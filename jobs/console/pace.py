"""How long work still takes, from how fast it was."""

from __future__ import annotations

import time
from collections.abc import Callable

from cluster.domain.status import Watched


class Pace:
    """How fast each thing is, from the first step that was seen of it."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.monotonic
        self._first: dict[str, tuple[float, int]] = {}

    def left(self, key: str, done: int, total: int) -> float | None:
        """Seconds; None until two different counts of `key` were seen."""
        now = self._clock()
        since, first = self._first.setdefault(key, (now, done))
        return (total - done) * (now - since) / (done - first) if done > first else None


def left_of(run: Watched) -> float | None:
    """Seconds until it is about done, as the cluster expects; None where nobody knows."""
    return None if run.expected is None else max(0.0, run.expected - time.time())


def time_left(seconds: float | None) -> str:
    """`40 s left`; nothing where it is not known."""
    return "" if seconds is None else f"{duration(seconds)} left"


def duration(seconds: float) -> str:
    """`40 s`, `3 min`, `2.5 h`"""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
