"""Evaluations of models as tables: accuracies of tasks and of classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cluster.domain.work import CONFUSED, ClassReport, Evaluated
from jobs.console.columns import fitting, in_parts, table, without_empty
from jobs.console.explanations import left_out
from jobs.console.tables import percent

WORST = 10  # classes shown if no task is chosen
WIDEST = 40  # width of the name of a class beside its numbers
KINDS = (
    *("zero_shot", "individual", "composed", "materialized"),
    *("unknown", "frozen_known", "frozen_unknown"),
)
NUMBERS = ("rows", "accuracy %", "F1 %")


def evaluation(
    found: Evaluated, before: str = "zero-shot", of: str | None = None
) -> RenderableType:
    """`before`: as in `tables.vectors`. `of`: a task of which all classes are shown, instead of the
    worst of all tasks."""
    own = ("rows", f"{before} %", "individual %", "composed %", "materialized %")
    beside = ("unknown %", "frozen base %", "frozen base, unknown %")
    made = table("task", *own, *beside, right=(*own, *beside))
    for task, one in found.per_task.items():
        rows = "" if one.rows is None else f"{one.rows:.0f}"
        made.add_row(task, rows, *(percent(getattr(one, name)) for name in KINDS))
    summary = Table(box=None, pad_edge=False, show_header=False)
    summary.add_row("absolute (mean of composed)", percent(found.absolute))
    if found.normalized is not None:
        summary.add_row("normalised (mean of composed / individual)", percent(found.normalized))
    summary.add_row("task unknown (among the classes of all)", percent(found.unknown))
    if found.materialized_unknown is not None:
        summary.add_row("the same, materialized", percent(found.materialized_unknown))
    if found.calibration_error is not None:
        summary.add_row("expected calibration error", percent(found.calibration_error))
    if found.none_auroc is not None:
        summary.add_row("none of these, AUROC", percent(found.none_auroc))
    if found.frozen_known is not None:
        known, unknown = percent(found.frozen_known), percent(found.frozen_unknown)
        summary.add_row("frozen base, same rows: task known / unknown", f"{known} / {unknown}")
    classes = _classes(of, found.by_class.get(of)) if of else _worst(found.by_class)
    tasks = in_parts(without_empty(made), own, beside)
    owed = [Text(), left_out(found)] if found.without else []
    return Group(tasks, Text(), summary, *_unjudged(found), *owed, *classes)


def _unjudged(found: Evaluated) -> list[Text]:
    """Tasks for which the model answers, but which these accuracies do not cover."""
    why = "no labelled rows of it were held out, or an earlier version made the model"
    of = "the figures are for the tasks of its vectors"
    return [Text(f"\n{task} is not judged: {why}; {of}") for task in found.unjudged]


def _figures(report: ClassReport) -> Iterator[tuple[float | None, list[str]]]:
    """For each class its F1 and the cells of its row; the last cell is the class that most of its
    other rows were taken for. Where confusions were not counted, its rows are not known either."""
    if not report.confusion:
        for name, share, score in zip(report.classes, report.accuracy, report.f1, strict=True):
            yield score, [name, "", percent(share), percent(score), ""]
        return
    figures = zip(report.classes, report.accuracy, report.f1, report.confusion, strict=True)
    for own, (name, share, score, answered) in enumerate(figures):
        others = [(count, other) for other, count in enumerate(answered) if other != own]
        most, taken = max(others, default=(0, own))
        taken_for = f"{report.classes[taken]} ({most})" if most else ""
        yield score, [name, str(sum(answered)), percent(share), percent(score), taken_for]


def _worst(by_class: Mapping[str, ClassReport]) -> list[RenderableType]:
    """The classes with the lowest F1, if any F1 is below 1."""
    rows = [
        (score, [task, *cells])
        for task, report in by_class.items()
        for score, cells in _figures(report)
        if score is not None and score < 1
    ]
    if not rows:
        return []
    count = sum(len(report.classes) for report in by_class.values())
    made = table("task", "class", *NUMBERS, "mostly taken for", right=NUMBERS)
    for _, cells in sorted(rows, key=lambda row: row[0])[:WORST]:
        made.add_row(*cells)
    said = f"the {WORST} worst of {count} classes" if len(rows) > WORST else "worst classes"
    return [Text(f"\n{said}; all of a task: --classes NAME", style="italic"), made]


def _classes(task: str, report: ClassReport | None) -> list[RenderableType]:
    """All classes of a task, and the classes with which their rows were answered."""
    if report is None:
        return [Text(f"\nthe classes of {task} were not measured")]
    made = table("class", *NUMBERS, "mostly taken for", right=NUMBERS)
    for _, cells in _figures(report):
        made.add_row(*cells)
    if not report.confusion:
        why = f"{len(report.classes)} classes; confusions are counted for at most {CONFUSED}"
        return [Text(f"\nthe classes of {task}: {why}", style="italic"), made]
    said = "rows of a class (down) by the class answered (across); empty rows left out"
    lines = [Text(f"\nthe classes of {task}", style="italic"), made]
    return [*lines, Text(f"\n{said}", style="italic"), *_confusion(report)]


def _confusion(report: ClassReport) -> Iterator[RenderableType]:
    """The confusion matrix; if it is too wide, groups of its columns below each other."""
    places = {name: place for place, name in enumerate(report.classes)}
    for names in fitting(report.classes, min(WIDEST, max(map(len, report.classes)))):
        made = table("class", *names, right=names)
        for own, row in zip(report.classes, report.confusion, strict=True):
            counts = {name: row[places[name]] for name in names}
            if any(counts.values()):
                made.add_row(own, *(_count(rows, name == own) for name, rows in counts.items()))
        yield made


def _count(rows: int, right: bool) -> Text:
    return Text(str(rows), style="bold" if right else "" if rows else "dim")
