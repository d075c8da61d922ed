"""A learner ends when nobody waits for it: a coordinator says so, or none answers for long."""

from __future__ import annotations

import time
from collections.abc import Callable

from cluster.runtime import connection

PERIOD = 5.0  # seconds between two requests


def until_orphaned(
    ask: Callable[[], bool | None],
    end: Callable[[], object],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Repeat `ask` until nobody waits; then `end`. `ask` returns None if no coordinator answers."""
    awaited, heard = None, clock()
    while awaited or (awaited is None and clock() - heard <= connection.RUN_SECONDS):
        sleep(PERIOD)
        awaited = ask()
        heard = heard if awaited is None else clock()
    end()
