"""Addition: one model of all tasks, each evaluated with its own head and among all classes."""

from __future__ import annotations

from jobs.experiments import plots
from jobs.experiments.context import Bench
from jobs.experiments.methods import HEADS, METHODS, train_of
from jobs.experiments.models import Accuracies, accuracies
from jobs.experiments.spec import Spec
from jobs.experiments.table import Column, Entry, Numbers, Table
from tacl.evaluation import metrics

ABOUT = (
    "One model of all tasks, on their test rows. *Absolute*: mean over tasks of the accuracy, each "
    "task with its own head. *Normalised*: mean over tasks of merged / single-task model by the "
    "same method, as first trained, before any refresh. *Of linear*: the same, divided by plain "
    "linear fine-tuning. *Class-incremental*: one head over the classes of all tasks. "
    "*Coefficients*: what the vectors are multiplied by."
)
COLUMNS = (
    Column("absolute", "absolute"),
    Column("normalised", "normalised"),
    Column("of_linear", "of linear"),
    Column("individual", "individual"),
    Column("class_incremental", "class-incremental"),
)


def entry(bench: Bench, variant: str) -> Entry:
    method = METHODS[variant]
    model = method.model(bench)
    found, trained = accuracies(model), method.train is not None
    textual = trained or bench.backbone.head_kind == "text"
    return Entry(
        variant,
        bench.seed,
        method.saw_training if textual else HEADS,
        method.saw_merging,
        numbers(found, trained),
        by_task(found, trained),
        model.facts,
        model.training,
        model.merging,
    )


def numbers(found: Accuracies, trained: bool = True) -> Numbers:
    """The columns; without a training there is no single-task model to divide by."""
    return {
        "absolute": metrics.absolute(found.merged),
        "normalised": metrics.normalized(found.merged, found.individual) if trained else None,
        "individual": metrics.absolute(found.individual) if trained else None,
        "class_incremental": metrics.absolute(found.class_incremental),
    }


def by_task(found: Accuracies, trained: bool = True) -> dict[str, Numbers]:
    return {
        task: {
            "absolute": found.merged[task],
            "individual": found.individual[task] if trained else None,
            "class_incremental": found.class_incremental[task],
            "zero_shot": found.zero_shot[task],
        }
        for task in found.merged
    }


def finish(table: Table) -> None:
    """merged / individual of plain linear fine-tuning, where the seed has both; and the policy."""
    for one in table.entries:
        one.coefficients = METHODS[one.variant].coefficients
    plain = {one.seed: _accuracy(one, "individual") for one in table.of("individual")}
    for one in table.entries:
        if one.seed in plain:
            one.numbers["of_linear"] = metrics.normalized(
                _accuracy(one, "absolute"), plain[one.seed]
            )


def _accuracy(one: Entry, key: str) -> dict[str, float]:
    return {task: numbers[key] or 0.0 for task, numbers in one.tasks.items()}


SPEC = Spec(
    "addition",
    ABOUT,
    COLUMNS,
    lambda suite: list(METHODS),
    entry,
    plots.bars,
    finish,
    train_of,
)
