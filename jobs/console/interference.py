"""The effect of vectors on the inputs of other tasks, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from cluster.domain import reports
from jobs.console.columns import fitting, table
from jobs.console.tables import counted, number

NOTHING = Text("nothing is measured: not yet, or samples are not shared")


class PlottedInterference(reports.InterferenceReport):
    picture: str | None = None  # path of its heat map; None if none was drawn


def interference(found: PlottedInterference) -> RenderableType:
    """Relative changes of logits, relative and raw tau_jp: a row per vector, a column per probe."""
    if not found.vectors:
        return Text("no vectors yet")
    tasks = [vector.task for vector in found.vectors]
    lines: list[RenderableType] = [
        Text("change of the logits, relative to the task's own vector", style="italic"),
        _matrix(found, found.logits, 2, tasks),
        Text("\ntau_jp, relative to the task's own vector", style="italic"),
        _matrix(found, found.relative, 2, tasks),
        Text("\ntau_jp: mean |J(x) tau| on each task's probe rows", style="italic"),
        _matrix(found, found.raw, 3, found.on),
    ]
    if found.missing:
        lines.append(Text(f"\n{found.missing} pairs are not measured yet"))
    lines += [Text(f"\nwarning: {one.message}", style="yellow") for one in found.findings]
    if any(not {one.vector, one.on} <= {*found.on} for one in found.loudest):
        lines += [Text("\nof all tasks the loudest", style="italic"), _pairs(found.loudest, found)]
    if found.picture is not None:
        lines.append(Text(f"\nheat map: {found.picture}"))
    return Group(*lines)


def task_interference(found: reports.TaskInterference) -> RenderableType:
    """The effect of a task's vector on others, and of their vectors on it."""
    does, bears = found.measured  # counts the generic shard too, which is no task
    lines = [
        Text(f"effect of the vector of {found.task} on {counted(does, 'shard')}", style="italic"),
        _pairs(found.does, found) if does else NOTHING,
        Text(
            f"\neffect on {found.task} of the vectors of {counted(bears, 'other task')}",
            style="italic",
        ),
        _pairs(found.bears, found) if bears else NOTHING,
    ]
    if any((one.logits or 0.0) >= found.high for one in (*found.does, *found.bears)):
        said = f"warning: logits of {found.high:g} and more; remove it: tacl refresh NAME"
        lines.append(Text(f"\n{said}", style="yellow"))
    return Group(*lines)


def _pairs(
    pairs: Sequence[reports.MeasuredPair], of: reports.InterferenceReport | reports.TaskInterference
) -> RenderableType:
    """One pair a line; a change of the logits that is high is yellow."""
    sizes = ("logits", "tau_jp", "raw")
    made = table("vector", "on", *sizes, right=sizes)
    for one in pairs:
        loud = "yellow" if (one.logits or 0.0) >= of.high else ""
        logits = Text("-" if one.logits is None else number(one.logits, 2), style=loud)
        relative = "-" if one.relative is None else number(one.relative, 2)
        made.add_row(f"{one.vector}@v{one.version}", one.on, logits, relative, number(one.raw))
    return made


def _matrix(
    found: reports.InterferenceReport,
    matrix: Sequence[Sequence[float | None]],
    digits: int,
    on: Sequence[str],
) -> RenderableType:
    """The columns `on` of one matrix, in groups below each other if they are too wide; a dash for a
    pair that is not measured."""
    parts: list[RenderableType] = []
    for names in fitting(on, max(len(vector.task) + 4 for vector in found.vectors)):
        made = table("vector", *names, right=names)
        for vector, row in zip(found.vectors, matrix, strict=True):
            values = dict(zip(found.on, row, strict=True))
            shown = ["-" if values[n] is None else number(values[n], digits) for n in names]
            made.add_row(f"{vector.task}@v{vector.version}", *shown)
        parts.append(made)
    return Group(*parts)
