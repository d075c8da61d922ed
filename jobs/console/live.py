"""A view of the cluster that goes on: tasks, queue and accuracies, and how long what is owed still
takes."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from jobs.console import tables
from jobs.console.progress import lines

PERIOD = 1.0  # seconds between two looks


def watch(look: Callable[[], tables.Overview]) -> None:
    """Until it is interrupted; in a file, a line for what changes."""
    console = tables.console()
    if not console.is_terminal:
        tell = lines(console)
        while True:
            tell(look())
            time.sleep(PERIOD)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(shown(look()), refresh=True)
            time.sleep(PERIOD)


def shown(found: tables.Overview) -> RenderableType:
    models = [f"{one.user}: {' '.join(one.terms)}" for one in found.users]
    lines = [*(["models", *models, ""] if models else []), "Ctrl-C ends this view"]
    return Group(tables.status(found), Text("\n" + "\n".join(lines)))
