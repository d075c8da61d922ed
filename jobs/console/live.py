"""A view of the cluster that is updated: tasks, queue and accuracies, and how long unfinished work
will still take."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from cluster.client.waiting import through_restarts
from cluster.domain.base import PAGE
from cluster.domain.status import TaskState, TaskStatus
from jobs.console import tables
from jobs.console.progress import left_of, lines, time_left

PERIOD = 1.0  # seconds between two updates


def watch(look: Callable[[], tables.Overview]) -> None:
    """Until interrupted, redraw the screen when something has changed; in a file, add a line. A
    cluster that is lost meanwhile is waited for a while."""
    console, look = tables.console(), through_restarts(look)
    if not console.is_terminal:
        tell = lines(console)
        while True:
            tell(look())
            time.sleep(PERIOD)
    seen: tuple[object, ...] = ()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            found = look()
            left = [time_left(left_of(one)) for one in (*found.tasks, *found.work)]
            if seen != (seen := (found, left, console.size)):
                live.update(fitting(found, console), refresh=True)
            time.sleep(PERIOD)


def fitting(found: tables.Overview, console: Console) -> RenderableType:
    """The part that fits the screen: a quarter of it for models, an eighth for other work,
    unfinished work first; the rest for tasks."""
    users = found.users[: console.height // 4]
    work = sorted(found.work, key=lambda run: not run.is_owed)
    work = work[: console.height // 8]  # each may have a reason, which takes another line
    most, fewer, before = min(console.height, len(found.tasks)), 0, 0
    while True:
        tasks = _first(found, most)
        some = found.model_copy(update={"tasks": tasks, "work": work, "users": users})
        left = len(found.users) - len(users)
        more = f"{'at least ' if len(found.users) >= PAGE else ''}{left} more" if left else ""
        view = shown(some, len(found.tasks) - len(tasks), more, len(found.work) - len(work))
        over = len(console.render_lines(view)) - console.height
        if over <= 0 or most <= 1:  # without any task the view would say that there is none
            return view
        each = max(1, (before - over) / fewer) if fewer else 2  # lines of a task, in two tables
        fewer, before = min(most - 1, max(1, int(over / each))), over
        most -= fewer


def _first(found: tables.Overview, most: int) -> tuple[TaskStatus, ...]:
    """At most `most` tasks, by arrival: those that are not ready, then the newest."""
    newest = sorted(range(len(found.tasks)), reverse=True)
    newest.sort(key=lambda number: found.tasks[number].state == TaskState.READY)
    return tuple(found.tasks[number] for number in sorted(newest[:most]))


def shown(found: tables.Overview, tasks: int = 0, users: str = "", runs: int = 0) -> RenderableType:
    """`tasks`, `users`, `runs`: how many more there are; of users a look gets at most PAGE."""
    models = [f"{one.user}: {' '.join(one.terms)}" for one in found.users]
    lines = ["models", *models, *([f"and {users}"] if users else []), ""] if models else []
    left = {"more task": tasks, "more run": runs}
    if more := [tables.counted(count, what) for what, count in left.items() if count]:
        lines = [f"and {', '.join(more)}: tacl status", "", *lines]
    text = "\n".join(["", *lines, "Ctrl-C ends this view"])
    return Group(tables.status(found), Text(text, no_wrap=True, overflow="ellipsis"))
