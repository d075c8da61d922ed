"""How a learner hears that nobody waits for it: a coordinator says so, or none comes for long."""

from __future__ import annotations

import time
from collections.abc import Callable

from cluster.runtime import connection

PERIOD = 5.0  # seconds between two questions


def is_alone(awaited: bool | None, silent: float) -> bool:
    """`awaited`: what the coordinator says, None while none has answered for `silent` seconds."""
    return silent > connection.RUN_SECONDS if awaited is None else not awaited


def until_alone(
    ask: Callable[[], bool | None],
    end: Callable[[], object],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Ask again and again; then `end`."""
    awaited, heard = None, clock()
    while not is_alone(awaited, clock() - heard):
        sleep(PERIOD)
        awaited = ask()
        heard = heard if awaited is None else clock()
    end()
