"""Negation: theta0 - c tau of one target task, and what that does to a control set."""

from __future__ import annotations

from collections.abc import Callable

from jobs.reproduce import pictures
from jobs.reproduce.bench import Bench
from jobs.reproduce.cost import Cost, together
from jobs.reproduce.directions import Vector, features
from jobs.reproduce.methods import LABELS, NOTHING, PENALISED, VALIDATION, Train, linear, tau_jp
from jobs.reproduce.models import right
from jobs.reproduce.spec import Spec
from jobs.reproduce.table import Column, Entry, Numbers
from tacl.metrics import COEFFICIENTS, absolute

KEPT = 0.95  # of the pre-trained accuracy on the control set
CONTROL_ROWS = "test:300"
ABOUT = (
    "Each task in turn is subtracted from the pre-trained encoder. *Target*: its test accuracy, "
    "mean over tasks, lower is better. *Control*: accuracy on the labels of the first generic set, "
    "at most 300 of its test rows; like every generic set its inputs were among the samples that a "
    "penalty sees. With a grid, the coefficient on [0, 1] is the one with the lowest target "
    "accuracy on validation rows among those that keep 95 % of the pre-trained control accuracy."
)
COLUMNS = (
    Column("target", "target"),
    Column("control", "control"),
    Column("target_zero_shot", "target, pre-trained"),
    Column("control_zero_shot", "control, pre-trained"),
    Column("coefficient", "coefficient", percent=False),
)
TRAIN: dict[str, Train] = {"linear": linear, "taujp": tau_jp}
VARIANTS = ("linear", "taujp", "linear-grid", "taujp-grid")


def entry(bench: Bench, variant: str) -> Entry:
    name, _, tuned = variant.partition("-")
    vectors = {task: TRAIN[name](bench, task) for task in bench.pool}
    tasks = {task: _negated(bench, vector, bool(tuned)) for task, vector in vectors.items()}
    means = {
        column.key: absolute({t: numbers[column.key] or 0.0 for t, numbers in tasks.items()})
        for column in COLUMNS
    }
    return Entry(
        variant,
        bench.seed,
        PENALISED if name == "taujp" else LABELS,
        VALIDATION if tuned else NOTHING,
        dict(means),
        tasks,
        training=together([vector.cost for vector in vectors.values()]),
        merging=Cost(),
    )


def _negated(bench: Bench, vector: Vector, tuned: bool) -> Numbers:
    control = bench.suite.generics[0]
    coefficient = _coefficient(bench, vector, control) if tuned else 1.0
    return {
        "target": _accuracy(bench, vector, vector.task, "test", coefficient),
        "control": _accuracy(bench, vector, control, CONTROL_ROWS, coefficient),
        "target_zero_shot": _accuracy(bench, vector, vector.task, "test", 0.0),
        "control_zero_shot": _accuracy(bench, vector, control, CONTROL_ROWS, 0.0),
        "coefficient": coefficient,
    }


def _coefficient(bench: Bench, vector: Vector, control: str) -> float:
    def on(task: str) -> Callable[[float], float]:
        return lambda c: _accuracy(bench, vector, task, "validation", c)

    return lowest(on(vector.task), on(control))


def lowest(target: Callable[[float], float], control: Callable[[float], float]) -> float:
    """Of 21 points the one with the lowest target accuracy that keeps 95 % of the control's.

    Of equal ones the smallest; 0 always keeps it.
    """
    least = KEPT * control(0.0)
    return min((c for c in COEFFICIENTS if control(c) >= least), key=target)


def _accuracy(bench: Bench, vector: Vector, task: str, part: str, coefficient: float) -> float:
    found = features(bench, vector, task, part, -coefficient)
    return right(bench, {task: found}, part)[task]


SPEC = Spec(
    "negation",
    ABOUT,
    COLUMNS,
    lambda suite: VARIANTS,
    entry,
    pictures.bars,
    trainings=lambda variant: [TRAIN[variant.partition("-")[0]]],
)
