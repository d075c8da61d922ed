"""Processes that train or read data yield the CPU to those that answer requests."""

from __future__ import annotations

import os

NICENESS = 10  # a tenth of an equal's time; no effect while nobody else needs the CPU


def lower_priority() -> None:
    """Lower the priority of this thread, and of those that it starts from now on."""
    now = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, max(now, NICENESS))
