"""A view of the cluster that goes on: tasks, queue and accuracies, and how long what runs still
takes."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from cluster.domain.status import ClusterStatus, Watched
from jobs.console import tables
from jobs.console.progress import watching

PERIOD = 1.0  # seconds between two looks


def watch(look: Callable[[], tables.Overview]) -> None:
    """Until it is interrupted; in a file, a line for what changes."""
    console, pace = tables.console(), Pace()
    if not console.is_terminal:
        with watching() as tell:
            while True:
                tell(look())
                time.sleep(PERIOD)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(shown(look(), pace, time.monotonic()), refresh=True)
            time.sleep(PERIOD)


def shown(found: tables.Overview, pace: Pace, now: float) -> RenderableType:
    left = [f"{one.label}: {duration(s)} left" for one, s in pace.left(found, now)]
    models = [f"{one.user}: {' '.join(one.terms)}" for one in found.users]
    lines = [*left, *(["", "models", *models] if models else []), "", "Ctrl-C ends this view"]
    return Group(tables.status(found), Text("\n" + "\n".join(lines)))


def duration(seconds: float) -> str:
    """`40 s`, `3 min`, `2.5 h`"""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Pace:
    """How fast runs are, from the first step that was seen of each."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[float, int]] = {}

    def left(self, found: ClusterStatus, now: float) -> list[tuple[Watched, float]]:
        """Seconds, of every run of which two different steps were seen."""
        known: list[tuple[Watched, float]] = []
        for one in (*found.tasks, *found.work):
            if not one.is_owed or not one.steps or one.step is None:
                continue
            since, step = self._first.setdefault(one.run_id, (now, one.step))
            if step < one.step:
                known.append((one, (one.steps - one.step) * (now - since) / (one.step - step)))
        return known
