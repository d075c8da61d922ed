"""Addition: one model of all tasks, each evaluated with its own head and among all classes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

from jobs.experiments import plots, saw
from jobs.experiments.bootstrap import Difference, interval, packed, unpacked
from jobs.experiments.classifiers import FROZEN, FittedClassifier
from jobs.experiments.context import Experiment
from jobs.experiments.fitted import Answering
from jobs.experiments.methods import METHODS, Make, Merging
from jobs.experiments.models import Accuracies, Model, accuracies
from jobs.experiments.table import Entry, Method, Numbers, Spec, Table, Train, shares
from tacl.evaluation import metrics

ABOUT = (
    "One model of all tasks, on their test rows. *Absolute*: mean over tasks of the accuracy, each "
    "task with its own head. *Normalised*: mean over tasks of merged / single-task model by the "
    "same method, as first trained, before any refresh. *Of linear*: the same, divided by plain "
    "linear fine-tuning. *Class-incremental*: one head over the classes of all tasks. "
    "*Coefficients*: what the vectors are multiplied by."
)


def with_labels(of: Merging) -> tuple[Train | None, str, str, Make, str]:
    """The same model with heads that are then fitted on labelled rows of all tasks."""
    return of.train, of.saw_training, saw.ALL_LABELS, of.make, of.coefficients


REFITTED = {  # one softmax over all classes, on labelled rows of all tasks under the model
    f"{name}+logistic": FittedClassifier(f"{name}+logistic", *with_labels(METHODS[name]))
    for name in ("taujp", "tsv-m", "mtl", "mtl-softmax")
}
ANSWERING = {  # heads as a cluster fits them, and the same without inner blocks
    name: Answering(name, *with_labels(one), inner)
    for one in (
        *(METHODS[name] for name in ("taujp", "taujp+refresh", "linear", "mixed-longer")),
        *(METHODS[name] for name in ("mixed-longer+refresh", "arriving", "arriving+refresh")),
    )
    for name, inner in ((f"{one.name}+fitted", False), (f"{one.name}+inner", True))
}
ROWS = {**METHODS, **FROZEN, **REFITTED, **ANSWERING}
AGAINST = ("frozen-logistic", "frozen-inner-logistic", "mtl-softmax", "tsv-m")
PackedRows = tuple[tuple[tuple[str, str], ...], ...]  # by seed and task: the right rows
COLUMNS = (
    *shares(absolute="absolute", normalised="normalised", of_linear="of linear"),
    *shares(individual="individual", class_incremental="class-incremental"),
)


def entry(experiment: Experiment, method: Merging | FittedClassifier | Answering) -> Entry:
    if isinstance(method, FittedClassifier | Answering):
        return of_fitted(experiment, method)
    if method.saw_training == saw.NOTHING and experiment.backbone.head_kind != "text":
        method = replace(method, saw_training=saw.HEADS)  # the heads are means of labelled rows
    return of_model(experiment, method, method.model(experiment))


def of_model(experiment: Experiment, method: Method, model: Model) -> Entry:
    found, costs = accuracies(model), {"training": [model.training], "merging": [model.merging]}
    made = method.entry(experiment, numbers(found), by_task(found), model.facts, **costs)
    return replace(made, right=right_rows(found) if method.name in AGAINST else {})


def of_fitted(experiment: Experiment, method: FittedClassifier | Answering) -> Entry:
    model = method.model(experiment)
    found, whole = method.accuracies(model)
    fitting, facts = method.cost(model, whole), {**model.facts, **whole.facts}
    costs = ([model.training], [model.merging, fitting]) if model.has_vectors else ([fitting], [])
    made = method.entry(experiment, numbers(found), by_task(found), facts, *costs)
    return replace(made, right=right_rows(found))


def right_rows(found: Accuracies) -> dict[str, dict[str, str]]:
    parts = {"absolute": found.known, "class_incremental": found.unknown}
    return {key: {t: packed(right_N) for t, right_N in part.items()} for key, part in parts.items()}


def numbers(found: Accuracies) -> Numbers:
    """Shares of all columns; no normalised one without single-task models."""
    alone = found.individual
    return {
        "absolute": metrics.absolute(found.merged),
        "normalised": metrics.normalized(found.merged, alone) if alone else None,
        "individual": metrics.absolute(alone) if alone else None,
        "class_incremental": metrics.absolute(found.class_incremental),
    }


def by_task(found: Accuracies) -> dict[str, Numbers]:
    kinds = {"absolute": found.merged, "individual": found.individual}
    kinds |= {"class_incremental": found.class_incremental, "zero_shot": found.zero_shot}
    return {task: {kind: of.get(task) for kind, of in kinds.items()} for task in found.known}


def finish(table: Table) -> None:
    """Fill in merged / individual of plain linear fine-tuning, for seeds that have both; how
    coefficients are set; and how much better fitted heads answer than the usual alternatives."""
    for one in table.entries:
        one.coefficients = ROWS[one.variant].coefficients
    plain = {one.seed: _accuracy(one, "individual") for one in table.of("individual")}
    for one in table.entries:
        if one.seed in plain:
            merged = _accuracy(one, "absolute")
            one.numbers["of_linear"] = metrics.normalized(merged, plain[one.seed])
    compared = product(ANSWERING, AGAINST, ("absolute", "class_incremental"))
    found = (_difference(table, *one) for one in compared)
    table.differences = [one for one in found if one is not None]


def _difference(table: Table, variant: str, against: str, key: str) -> Difference | None:
    """The difference over the seeds that have both."""
    ours, theirs = (
        {one.seed: one.right[key] for one in table.of(name) if key in one.right}
        for name in (variant, against)
    )
    seeds = tuple(sorted(ours.keys() & theirs.keys()))
    if not seeds:
        return None
    pairs = (tuple(tuple(of[seed].items()) for seed in seeds) for of in (ours, theirs))
    return Difference(key, variant, against, *_interval(*pairs), seeds)


@cache
def _interval(ours: PackedRows, theirs: PackedRows) -> tuple[float, float, float]:
    """Cached: a table is written after every entry, and most of its pairs have not changed."""
    rights = ([{t: unpacked(text) for t, text in one} for one in of] for of in (ours, theirs))
    return interval(*rights)


def _accuracy(one: Entry, key: str) -> dict[str, float]:
    return {task: numbers[key] or 0.0 for task, numbers in one.tasks.items()}


SPECS = (
    Spec("addition", ABOUT, COLUMNS, lambda suite: [*ROWS.values()], entry, plots.bars, finish),
)
