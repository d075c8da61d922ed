"""Who trains or reads data has less of a processor than who answers people, where both want it."""

from __future__ import annotations

import os

NICENESS = 10  # a tenth of the time that an equal would have; nothing where nobody else wants it


def lower_priority() -> None:
    """This thread, and those that it starts from now on."""
    now = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, max(now, NICENESS))
