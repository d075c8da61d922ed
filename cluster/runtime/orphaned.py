"""How a learner hears that nobody waits for it: a coordinator says so, or none comes for long."""

from __future__ import annotations

import time
from collections.abc import Callable

from cluster.runtime import connection

PERIOD = 5.0  # seconds between two questions


def until_orphaned(
    ask: Callable[[], bool | None],
    end: Callable[[], object],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Ask again and again; then `end`. The answer is None while no coordinator gives one."""
    awaited, heard = None, clock()
    while awaited or (awaited is None and clock() - heard <= connection.RUN_SECONDS):
        sleep(PERIOD)
        awaited = ask()
        heard = heard if awaited is None else clock()
    end()
