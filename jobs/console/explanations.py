"""Why a model answers as it does, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from cluster.domain.explanations import Explanation, Explanations
from cluster.domain.work import Evaluated
from jobs.console.columns import fitting, table

WIDEST = 40  # width of the names of parts; that of a merge has all of its terms


def explanations(inputs: Sequence[str], found: Explanations, most: int) -> RenderableType:
    """For each input: what every part adds to the logit of the answer, and the answer without it;
    if `most` > 1, also what it adds to the logits of the `most` likeliest classes."""
    lines: list[RenderableType] = []
    for asked, one in zip(inputs, found.explanations, strict=True):
        best = one.best
        said = f"{best.task}: {best.label}, probability {best.probability:.3f}"
        lines += [Text(asked[:90], style="italic"), Text(said), _parts(one), Text()]
        lines += [*_logits(one, most), Text()] if most > 1 else []
    return Group(*lines, Text(_READING))


_READING = (
    "logit: what the part adds to that of the answer; these add up to it. without: what is "
    "answered when the vector is left out; --top N has the logits of the N likeliest classes."
)


def _parts(one: Explanation) -> RenderableType:
    numbers = ("features %", "logit", "its probability")
    made = table("part", *numbers[:2], "without", numbers[2], right=numbers)
    task, label = one.best.task, one.best.label
    for part in one.parts:
        logit = f"{part.logits[task][label]:+.2f}"
        if part.without is None:
            made.add_row(part.part, f"{100 * part.share:.1f}", logit, "", "")
            continue
        same = (part.without.task, part.without.label) == (task, label)
        other = "the same" if same else f"{part.without.task}: {part.without.label}"
        made.add_row(part.part, f"{100 * part.share:.1f}", logit, other, f"{part.probability:.3f}")
    made.add_row("together", "100.0", f"{one.logits[task][label]:+.2f}", "", "", style="bold")
    return made


def _logits(one: Explanation, most: int) -> list[RenderableType]:
    """A row per part, a column per class, the likeliest first; groups of columns below each other
    if they are too wide."""
    every = [(task, label) for task, of in one.logits.items() for label in of]
    likeliest = sorted(every, key=lambda of: -one.logits[of[0]][of[1]])[:most]
    columns = {f"{task}: {label}": (task, label) for task, label in likeliest}
    rows = [*((part.part, part.logits) for part in one.parts), ("together", one.logits)]
    lines: list[RenderableType] = [Text("added to each logit", style="italic")]
    for names in fitting(list(columns), min(WIDEST, max(len(part) for part, _ in rows))):
        made = table("part", *names, right=names)
        for part, logits in rows:
            of = (columns[name] for name in names)
            made.add_row(part, *(f"{logits[task][label]:+.2f}" for task, label in of))
        lines.append(made)
    return lines


def left_out(found: Evaluated) -> RenderableType:
    """A row per vector, a column per task: points of accuracy that the task owes to the vector."""
    first = max([len("vector"), *map(len, found.without)])
    lines: list[RenderableType] = []
    for names in fitting(list(found.per_task), first):
        made = table("vector", *names, right=names)
        composed = (f"{100 * found.per_task[name].composed:.1f}" for name in names)
        made.add_row("accuracy %", *composed, style="italic")
        for part, row in found.without.items():
            gains = [100 * (found.per_task[name].composed - row[name]) for name in names]
            made.add_row(part, *map(_points, gains))
        lines.append(made)
    said = "accuracy on test rows, and the points of it that each task owes to each vector"
    return Group(Text(said, style="italic"), *lines)


def _points(gain: float) -> Text:
    colour = "green" if gain > 0.05 else "red" if gain < -0.05 else ""
    return Text(f"{gain:+.1f}", style=colour)
