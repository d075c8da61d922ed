"""Reports the progress of a piece of work while it runs; a training reports its own with each
request for its next steps.

The answer to a report says whether somebody waits for this work's place: then upkeep gives way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from cluster.domain.status import Phase
from cluster.domain.work import Piece, Progress

# (steps done, of how many, loss) -> whether to give way
ProgressCallback = Callable[[int, int, float | None], bool]
Begins = Callable[[Phase], None]
SECONDS = 1.0


class ProgressSink(Protocol):
    """The part of the coordinator that takes reports of progress; see `RunAPI.report_progress`."""

    def report_progress(self, run_id: str, progress: Progress, attempt: int) -> bool: ...


def in_phases(work: Piece, hears: ProgressSink) -> Begins:
    """A function that reports the phase that starts now, for what is done beside steps."""

    def begins(phase: Phase) -> None:
        hears.report_progress(work.run_id, Progress(phase=phase), work.attempt)

    return begins


def throttled(
    tell: ProgressCallback, clock: Callable[[], float] = time.monotonic
) -> ProgressCallback:
    """Wraps `tell` so that it is called at most once a second; in between, the answer is False."""
    last = clock()

    def told(step: int, steps: int, loss: float | None) -> bool:
        nonlocal last
        if clock() - last < SECONDS:
            return False
        gives_way = tell(step, steps, loss)
        last = clock()
        return gives_way

    return told
