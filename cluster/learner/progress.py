"""How far a piece of work is, told while it is under way: a refresh, a composition.

A training tells of it anyway, when it asks for its next steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Tell = Callable[[int, int, float], None]  # (steps done, of how many, loss)
SECONDS = 1.0


def now_and_then(tell: Tell, clock: Callable[[], float] = time.monotonic) -> Tell:
    """Whoever is told hears of a step at most once a second."""
    last = clock()

    def told(step: int, steps: int, loss: float) -> None:
        nonlocal last
        if clock() - last >= SECONDS:
            tell(step, steps, loss)
            last = clock()

    return told
