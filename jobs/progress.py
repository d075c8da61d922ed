"""Progress of long work, on stderr: bars for a person, plain lines for a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

ENDED = ("done", "failed")
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
def watching() -> Iterator[Callable[[dict[str, Any]], None]]:
    """Tell it the coordinator's status, again and again."""
    console = stderr()
    if not console.is_terminal:
        yield _plain_watch(console)
        return
    with Progress(*_columns(), console=console) as progress:
        yield _bars(progress)


def _columns() -> tuple[Any, ...]:
    return (
        TextColumn("{task.description}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
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
    seen: dict[str, tuple[str, int] | None] = {}

    def watch(status: dict[str, Any]) -> None:
        for one in works(status):
            steps = one.get("steps") or 0
            tenth = 10 * (one.get("step") or 0) // steps if steps else 0
            mark = (one["state"], tenth)
            before = seen.setdefault(label(one), mark if one["state"] in ENDED else None)
            if before != mark:
                console.print(f"{label(one)}: {said(one)}", markup=False)
            seen[label(one)] = mark

    return watch


def _bars(progress: Progress) -> Callable[[dict[str, Any]], None]:
    """A bar for everything that was seen at work."""
    bars: dict[str, Any] = {}

    def watch(status: dict[str, Any]) -> None:
        for one in works(status):
            name = label(one)
            if name not in bars and one["state"] in ("queued", "running"):
                bars[name] = progress.add_task(name, total=None, note="")
            if name in bars:
                steps = one.get("steps")
                done = steps if one["state"] == "done" else one.get("step") or 0
                progress.update(bars[name], completed=done, total=steps, note=said(one))

    return watch


def works(status: dict[str, Any]) -> list[dict[str, Any]]:
    """Trainings by task, then everything else that is done or waits."""
    return [*status["tasks"], *status["work"]]


def label(one: dict[str, Any]) -> str:
    if "name" in one:
        return one["name"]
    return " ".join(part for part in (one["kind"], one.get("task"), one["run_id"][:6]) if part)


def said(one: dict[str, Any]) -> str:
    """Where it is, in a few words."""
    parts = [one["state"]]
    if one.get("step") and one.get("steps"):
        parts.append(f"step {one['step']} of {one['steps']}")
    if one.get("loss") is not None:
        parts.append(f"loss {one['loss']:.3f}")
    if one["state"] in ("queued", "failed") and one.get("reason"):
        parts.append(str(one["reason"]))
    return ", ".join(parts)
