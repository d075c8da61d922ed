"""The chapters of the demo's story as tables."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from cluster.domain.work import Evaluated
from jobs.console.tables import percent, table
from jobs.demo.story import ArrivedTask, Chapter, RankedClasses, Refreshing, Subtraction, Users

ANSWERS = 2  # classes shown for an answer


def chapter(told: Chapter) -> RenderableType:
    match told:
        case ArrivedTask():
            return arrival(told)
        case Users():
            return users(told)
        case Subtraction():
            return subtraction(told)


def headed(title: str, *parts: RenderableType) -> Group:
    return Group(Text(), Rule(Text(title, style="bold"), align="left"), *parts)


def arrival(told: ArrivedTask) -> RenderableType:
    """Every task so far: zero-shot, by its own vector, and by the sum of all vectors."""
    count = len(told.sum.per_task)
    title = f"{told.task} has arrived: the sum of {count} vector{'s' * (count > 1)}, in %"
    parts: list[RenderableType] = [_accuracies(told)]
    if told.refreshes:
        parts += [Text(), _refreshes(told.refreshes)]
    return headed(title, *parts)


def _accuracies(told: ArrivedTask) -> Table:
    """Accuracies by task; the last row is their mean."""
    kinds = {"zero-shot": (told.sum, "zero_shot"), "own model": (told.sum, "individual")}
    kinds |= {"never refreshed": (told.unrefreshed, "composed")} if told.unrefreshed else {}
    kinds |= {"sum so far": (told.sum, "composed")}
    made = table("task", *kinds, right=kinds)
    for task in told.sum.per_task:
        cells = (percent(getattr(found.per_task[task], kind)) for found, kind in kinds.values())
        made.add_row(task, *cells)
    made.add_section()
    made.add_row("mean", *(percent(_mean(*one)) for one in kinds.values()), style="bold")
    return made


def _mean(found: Evaluated, kind: str) -> float:
    return fmean(getattr(row, kind) for row in found.per_task.values())


def _refreshes(refreshes: Sequence[Refreshing]) -> Group:
    figures = ("interference left", "own function changed")
    made = table("refreshed without labels", "", *figures, right=figures)
    failed = []
    for one in refreshes:
        if one.own_change is None:
            failed.append(Text(f"{one.vector} stays: {one.reason}", style="red"))
            continue
        verdict = "stays" if one.version is None else f"-> v{one.version}"
        left = (one.interference_after or 0) / max(one.interference_before or 0, 1e-12)
        made.add_row(one.vector, verdict, f"{left:.0%}", f"{one.own_change:.0%}")
    return Group(*([made] if made.rows else []), *failed)


def users(told: Users) -> RenderableType:
    """Users' models, and their answers."""
    models = [Text(f"{user:6} {'  '.join(terms)}") for user, terms in told.models.items()]
    made = table("user", "image of", "", "answer")
    for one in told.answers:
        mark = Text("right", "green") if one.shown == one.ranked[0][0] else Text("wrong", "red")
        made.add_row(one.user, one.shown, mark, _ranked(one))
    title = "Two users, two models of the same vectors, one image per task"
    return headed(title, *models, Text(), made)


def _ranked(one: RankedClasses) -> str:
    return ", ".join(f"{name} {share:.2f}" for name, share in one.ranked[:ANSWERS])


def subtraction(told: Subtraction) -> RenderableType:
    """Accuracies before and after: that of one task should fall, those of the others stay."""
    minus = f"-{told.task} instead"
    columns = ("zero-shot", "sum of all", minus)
    made = table("task", *columns, right=columns)
    for task, row in told.sum.per_task.items():
        less = told.subtracted.per_task[task].composed
        cells = (percent(value) for value in (row.zero_shot, row.composed, less))
        made.add_row(task, *cells, style="bold" if task == told.task else None)
    return headed(f"{told.task} subtracted instead of added, in %", made)


def summary(arrivals: Sequence[ArrivedTask]) -> RenderableType:
    """The sum after each arrival, task by task.

    Then the mean, the mean of composed / own, and the mean with the task unknown: the classes of
    all tasks compete in one head. Last, a classifier on the base model.
    """
    tasks = [told.task for told in arrivals]
    measures = ("mean", "of own", "task\nunknown")  # within 80 columns
    made = table("after", *tasks, *measures, right=(*tasks, *measures))
    for told in arrivals:
        found = told.sum
        cells = [percent(one and one.composed) for one in map(found.per_task.get, tasks)]
        figures = (found.absolute, found.normalized, found.unknown)
        made.add_row(told.task, *cells, *map(percent, figures))
    title = "The sum after each arrival, in % (task unknown: among all classes)"
    return headed(title, made, *_frozen(arrivals[-1].sum))


def _frozen(found: Evaluated) -> list[Text]:
    if found.frozen_known is None:
        return []
    known, unknown = percent(found.frozen_known), percent(found.frozen_unknown)
    told = f"A classifier on the base model, fitted on the same rows: {known}; unknown {unknown}."
    return [Text(), Text(told)]
