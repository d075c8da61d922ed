"""Progress of long work, on stderr: bars for a person, plain lines for a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

OWED = ("queued", "training", "running")
QUIET_SECONDS = 5.0  # between two plain lines about the same thing


def stderr() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """Tell it (done, total)."""
    console = stderr()
    if not console.is_terminal:
        yield _plain_counter(console, what)
        return
    with Progress(*_columns(), console=console, transient=True) as progress:
        bar = progress.add_task(what, total=None, note="")
        yield lambda done, total: progress.update(bar, completed=done, total=total)


@contextmanager
def saying(what: str) -> Iterator[Callable[[str], None]]:
    """Tell it lines: what is being done now."""
    console = stderr()
    if not console.is_terminal:
        yield lambda line: console.print(line, markup=False)
        return
    with console.status(what) as spinner:
        yield lambda line: spinner.update(f"{what}: {line[-100:]}")


@contextmanager
def watching(tables: Console | None = None) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Tell it the coordinator's status, again and again.

    With `tables`, a console that is printed on meanwhile, only what is at work has a bar, below.
    """
    console = tables or stderr()
    if not console.is_terminal:
        yield _plain_watch(stderr())
        return
    with Progress(
        *_columns(), console=console, transient=tables is not None, expand=True
    ) as progress:
        yield _bars(progress, keep=tables is None)


def _columns() -> tuple[Any, ...]:
    return (
        TextColumn("{task.description}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", table_column=Column(ratio=1, no_wrap=True)),
    )


def _plain_counter(console: Console, what: str) -> Callable[[int, int], None]:
    said = time.monotonic()

    def count(done: int, total: int) -> None:
        nonlocal said
        if time.monotonic() - said > QUIET_SECONDS:
            said = time.monotonic()
            console.print(f"{what}: {done} of {total}")

    return count


def _plain_watch(console: Console) -> Callable[[dict[str, Any]], None]:
    """A line when a state changes, and with every tenth of the steps; none for what had ended."""
    seen: dict[str, tuple[str, tuple[str, int] | None]] = {}

    def watch(status: dict[str, Any]) -> None:
        now = works(status)
        for key, one in now.items():
            steps = one.get("steps") or 0
            mark = (one["state"], 10 * (one.get("step") or 0) // steps if steps else 0)
            _, before = seen.get(key, ("", None if one["state"] in OWED else mark))
            if before != mark:
                console.print(f"{label(one)}: {said(one)}", markup=False)
            seen[key] = (label(one), mark)
        for key in seen.keys() - now.keys():  # done work is no longer listed
            console.print(f"{seen.pop(key)[0]}: done", markup=False)

    return watch


def _bars(progress: Progress, keep: bool = True) -> Callable[[dict[str, Any]], None]:
    """A bar for everything that was seen at work; or, without `keep`, that is."""
    bars: dict[str, Any] = {}

    def watch(status: dict[str, Any]) -> None:
        now = works(status)
        if not keep:
            now = {key: one for key, one in now.items() if one["state"] in OWED}
        for key, one in now.items():
            if key not in bars and one["state"] in OWED:
                bars[key] = progress.add_task(label(one), total=None, note="")
            if key in bars:
                steps, owed = one.get("steps"), one["state"] in OWED
                total = steps if owed else steps or 1  # None: nobody knows yet
                done = one.get("step") or 0 if owed else total
                progress.update(bars[key], completed=done, total=total, note=said(one))
        for key in bars.keys() - now.keys():  # done work is no longer listed
            ended = bars.pop(key)
            progress.update(ended, completed=1, total=1, note="done", visible=keep)

    return watch


def works(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Trainings by task, then everything else that is owed or failed, by a key of its own."""
    return {one["run_id"]: one for one in [*status["tasks"], *status["work"]]}


def label(one: dict[str, Any]) -> str:
    """A task's name, or what a run is about."""
    return one.get("name") or one["about"]


def said(one: dict[str, Any]) -> str:
    """Where it is, in a few words."""
    parts = [one["state"]]
    if one["state"] in OWED and one.get("steps"):
        parts += [f"step {one['step']} of {one['steps']}", f"loss {one['loss']:.3f}"]
    if one.get("accuracy_after") is not None:
        parts.append(f"accuracy {100 * one['accuracy_after']:.1f} %")
    if one["state"] in ("queued", "failed") and one.get("reason"):
        parts.append(str(one["reason"]))
    return ", ".join(parts)
