"""Progress of long work, on stderr: bars on a terminal, plain lines in a file; with the time left,
estimated from the speed so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from cluster.domain.status import ClusterStatus, Phase, RunStatus, TaskStatus, Watched

PHASES = {
    Phase.STARTING: "starting",
    Phase.LOADING: "loading the base",
    Phase.HEAD: "making its head",
    Phase.STATISTICS: "taking statistics",
    Phase.ENGINE: "setting up",
    Phase.SAMPLES: "reading samples",
    Phase.MEASURING: "measuring",
}
QUIET_SECONDS = 5.0  # between two plain lines about the same thing
Watch = Callable[[ClusterStatus], None]


class Speed:
    """The speed of some work, from the first step that was seen."""

    _first: tuple[float, int] | None = None

    def left(self, done: int, total: int) -> float | None:
        """Seconds left; None until two different counts were seen."""
        now = time.monotonic()
        self._first = self._first or (now, done)
        since, first = self._first
        return (total - done) * (now - since) / (done - first) if done > first else None


def left_of(run: Watched) -> float | None:
    """Seconds until the run is expected to be done; None if the cluster does not know, or if it
    takes longer than expected."""
    left = 0.0 if run.expected is None else run.expected - time.time()
    return left if left > 0 else None


def time_left(seconds: float | None) -> str:
    """`40 s left`; empty if it is not known."""
    return "" if seconds is None else f"{duration(seconds)} left"


def duration(seconds: float) -> str:
    """`40 s`, `3 min`, `2.5 h`"""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def stderr() -> Console:
    """Prints text unchanged, like `tables.console`: names of files are users' text."""
    return Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


class Counter:
    """Call it with (done, total)."""

    def __init__(self, count: Callable[[int, int], None], progress: Progress | None = None) -> None:
        self._count, self._progress = count, progress

    def __call__(self, done: int, total: int) -> None:
        self._count(done, total)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Take the bar off the terminal while a person is asked something."""
        if self._progress is None:
            yield
            return
        self._progress.stop()
        yield
        self._progress.start()


@contextmanager
def counting(what: str) -> Iterator[Counter]:
    console = stderr()
    if not console.is_terminal:
        yield Counter(_plain_counter(console, what))
        return
    with Progress(*_columns(), console=console, transient=True) as progress:
        bar = progress.add_task(what, total=None, note="")
        count = lambda done, total: progress.update(bar, completed=done, total=total)  # noqa: E731
        yield Counter(count, progress)


@contextmanager
def saying(what: str) -> Iterator[Callable[[str], None]]:
    """Yields a function that takes lines about what is done now."""
    console = stderr()
    if not console.is_terminal:
        yield lambda line: console.print(f"{what}: {line}")
        return
    with console.status(Text(what)) as spinner:
        yield lambda line: spinner.update(Text(f"{what}: {line[-100:]}"))


@contextmanager
def watching(tables: Console | None = None) -> Iterator[Watch]:
    """Yields a function that takes each new status of the cluster.

    With `tables`, a console that is printed to meanwhile, only running work has a bar, below.
    """
    console = tables or stderr()
    if not console.is_terminal:
        yield lines(stderr())
        return
    columns = (one for one in _columns() if not isinstance(one, TimeLeft))  # the cluster reports it
    shown = Progress(
        *columns,
        console=console,
        transient=tables is not None,
        expand=True,
        refresh_per_second=2,  # the status is updated once a second
    )
    with shown as progress:
        yield _bars(progress, keep=tables is None)


def _columns() -> tuple[Any, ...]:
    return (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TimeLeft(),
        TextColumn("{task.fields[note]}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
    )


class TimeLeft(ProgressColumn):
    """`40 s left`; at the end, the time it took."""

    def render(self, task: Task) -> Text:
        ended = task.finished_time
        said = time_left(task.time_remaining) if ended is None else duration(ended)
        return Text(said, style="progress.remaining")


def _plain_counter(console: Console, what: str) -> Callable[[int, int], None]:
    last, speed = time.monotonic(), Speed()

    def count(done: int, total: int) -> None:
        nonlocal last
        left = time_left(speed.left(done, total))
        if time.monotonic() - last > QUIET_SECONDS:
            last = time.monotonic()
            console.print(", ".join(filter(None, (f"{what}: {done} of {total}", left))))

    return count


def lines(console: Console) -> Watch:
    """Print a line when a state or phase changes, at every tenth of the steps, and when a head is
    fitted; none for work that had ended before."""
    seen: dict[str, tuple[str, tuple[str, Phase | None, int, bool] | None]] = {}
    tasks = set[str]()

    def watch(status: ClusterStatus) -> None:
        now = _by_run(status)
        tasks.update(task.run_id for task in status.tasks)
        for run_id, one in now.items():
            tenth = 10 * (one.step or 0) // one.steps if one.steps else 0
            _, known = seen.get(run_id, ("", None))
            mark = (one.state, one.phase, tenth, _is_fitted(one) or bool(known and known[3]))
            before = known or (None if one.is_owed else mark)
            if before != mark:
                console.print(f"{one.label}: {described(one)}", soft_wrap=True)
            seen[run_id] = (one.label, mark)
        for run_id in seen.keys() - now.keys():  # finished work is not listed, tasks always are
            ended = "gone" if run_id in tasks else "done"
            console.print(f"{seen.pop(run_id)[0]}: {ended}", soft_wrap=True)

    return watch


def _bars(progress: Progress, keep: bool) -> Watch:
    """Show a bar for all work that was seen running or, without `keep`, that runs now."""
    bars: dict[str, Any] = {}
    tasks = set[str]()

    def watch(status: ClusterStatus) -> None:
        tasks.update(task.run_id for task in status.tasks)
        now = {run_id: one for run_id, one in _by_run(status).items() if keep or one.is_owed}
        for run_id, one in now.items():
            if run_id not in bars and one.is_owed:
                bars[run_id] = progress.add_task(one.label, total=None, note="")
            if run_id in bars:
                total = one.steps if one.is_owed else one.steps or 1  # None: not known yet
                done = one.step or 0 if one.is_owed else total
                note = described(one, counted=True)
                progress.update(bars[run_id], completed=done, total=total, note=note)
        for run_id in bars.keys() - now.keys():  # finished work is not listed, tasks always are
            ended = "gone" if run_id in tasks else "done"
            progress.update(bars.pop(run_id), completed=1, total=1, note=ended, visible=keep)

    return watch


def _is_fitted(one: Watched) -> bool:
    return isinstance(one, TaskStatus) and one.accuracy_fitted is not None


def _by_run(status: ClusterStatus) -> dict[str, Watched]:
    return {one.run_id: one for one in (*status.tasks, *status.work)}


def described(one: Watched, counted: bool = False) -> str:
    """State, phase or step unless it is `counted` elsewhere, loss, time left, accuracy and reason,
    in one line."""
    importing = one.state == "training" and isinstance(one, TaskStatus) and one.imports
    parts = ["importing" if importing else str(one.state)]
    if one.phase is not None:
        parts.append(PHASES[one.phase])
    elif one.is_owed and one.steps:
        unit = "row" if isinstance(one, RunStatus) and one.kind == "evaluate" else "step"
        parts += [] if counted else [f"{unit} {one.step or 0} of {one.steps}"]
        parts += [] if one.loss is None else [f"loss {one.loss:.3f}"]
    parts += filter(None, [time_left(left_of(one))])
    if isinstance(one, TaskStatus) and one.accuracy_after is not None:
        parts.append(f"accuracy {100 * one.accuracy_after:.1f} %")
    if isinstance(one, TaskStatus) and one.accuracy_fitted is not None:
        assert one.accuracy_frozen is not None
        points = 100 * (one.accuracy_fitted - one.accuracy_frozen)
        parts.append(f"with its fitted head {points:+.1f} points over the frozen base")
    if one.state in ("queued", "failed") and one.reason:
        parts.append(one.reason)
    return ", ".join(parts)


def steps(one: Watched) -> str:
    """`12/300` while it runs, or its phase; empty for work that has neither."""
    if one.phase is not None:
        return PHASES[one.phase]
    runs = one.is_owed and one.state != "queued"
    return f"{one.step or 0}/{one.steps}" if runs and one.steps else ""
