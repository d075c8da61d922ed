"""How far a piece of work is, told while it is under way; a training tells of it anyway, when it
asks for its next steps.

Whoever tells hears whether somebody waits for the place of this work: then upkeep gives it back.
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
    """The coordinator, for who tells it how far a run is; see `RunAPI.progressed`."""

    def progressed(self, run_id: str, progress: Progress, attempt: int) -> bool: ...


def in_phases(work: Piece, hears: ProgressSink) -> Begins:
    """Give it what a training does next, beside its steps."""

    def begins(phase: Phase) -> None:
        hears.progressed(work.run_id, Progress(phase=phase), work.attempt)

    return begins


def throttled(
    tell: ProgressCallback, clock: Callable[[], float] = time.monotonic
) -> ProgressCallback:
    """Whoever is told hears of a step at most once a second."""
    last = clock()

    def told(step: int, steps: int, loss: float | None) -> bool:
        nonlocal last
        if clock() - last < SECONDS:
            return False
        gives_way = tell(step, steps, loss)
        last = clock()
        return gives_way

    return told
