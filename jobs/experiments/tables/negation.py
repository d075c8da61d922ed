"""Negation: theta0 - c tau of one target task, and what that does to a control set.

With aTLAS there is one coefficient for each block of the target's vector (`tacl.compose.negation`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from jobs.experiments import plots
from jobs.experiments.cache import Cell, Made
from jobs.experiments.context import Bench
from jobs.experiments.cost import Cost, together
from jobs.experiments.directions import Direction, Kept, Vector, features
from jobs.experiments.learned import ROWS
from jobs.experiments.methods import (
    LABELS,
    NOTHING,
    PENALISED,
    VALIDATION,
    Train,
    linear,
    ordinary,
    tau_jp,
)
from jobs.experiments.models import right
from jobs.experiments.spec import Spec
from jobs.experiments.table import Column, Entry, Numbers, mean_of
from tacl.compose import grid
from tacl.compose.learning import learn, learning_config
from tacl.compose.negation import unlearning
from tacl.compose.scaled import ScaledEncoder
from tacl.heads.joint import JointHead, joint_data

PART = "validation:100"  # of target and control, to learn coefficients from
CONTROL_ROWS = "test:300"
ABOUT = (
    "Each task in turn is subtracted from the pre-trained encoder. *Target*: its test accuracy, "
    "mean over tasks, lower is better. *Control*: accuracy on the labels of the first generic set, "
    "at most 300 of its test rows; like every generic set its inputs were among the samples that a "
    "penalty sees. With a grid, the coefficient on [0, 1] is the one with the lowest target "
    "accuracy on validation rows among those that keep 95 % of the pre-trained control accuracy; "
    "with atlas each block of the vector has a coefficient, learned from 0 on at most 100 labelled "
    "validation rows of both, and the step is chosen in the same way (no coefficient is told)."
)
COLUMNS = (
    Column("target", "target"),
    Column("control", "control"),
    Column("target_zero_shot", "target, pre-trained"),
    Column("control_zero_shot", "control, pre-trained"),
    Column("coefficient", "coefficient", percent=False),
)
KEYS = tuple(column.key for column in COLUMNS)
TRAIN: dict[str, Train] = {"linear": linear, "taujp": tau_jp, "ordinary": ordinary}
VARIANTS = (
    "linear",
    "taujp",
    "linear-grid",
    "taujp-grid",
    "linear-atlas",
    "taujp-atlas",
    "ordinary",
    "ordinary-atlas",
)


@dataclass(frozen=True)
class Negated:
    """The model at `coefficient` times the direction; None: whatever there is, lies in it."""

    direction: Direction
    coefficient: float | None = None
    cost: Cost = field(default_factory=Cost)


def entry(bench: Bench, variant: str) -> Entry:
    name, _, tuned = variant.partition("-")
    vectors = {task: TRAIN[name](bench, task) for task in bench.pool}
    found = {task: _negated(bench, vector, tuned) for task, vector in vectors.items()}
    tasks = {task: _numbers(bench, task, one) for task, one in found.items()}
    means = {key: mean_of([numbers[key] for numbers in tasks.values()]) for key in KEYS}
    return Entry(
        variant,
        bench.seed,
        PENALISED if name == "taujp" else LABELS,
        VALIDATION if tuned else NOTHING,
        means,
        tasks,
        training=together([vector.cost for vector in vectors.values()]),
        merging=together([one.cost for one in found.values()]),
    )


def _negated(bench: Bench, vector: Vector, tuned: str) -> Negated:
    control = bench.suite.generics[0]
    if tuned == "atlas":
        cell = unlearned(bench, vector, control)
        return Negated(Kept(cell, vector.regime), cost=cell.cost)
    return Negated(vector, -_coefficient(bench, vector, control) if tuned else -1.0)


def _numbers(bench: Bench, task: str, found: Negated) -> Numbers:
    control, at = bench.suite.generics[0], found.coefficient
    share = partial(_accuracy, bench, found.direction)
    return {
        "target": share(task, "test", 1.0 if at is None else at),
        "control": share(control, CONTROL_ROWS, 1.0 if at is None else at),
        "target_zero_shot": share(task, "test", 0.0),
        "control_zero_shot": share(control, CONTROL_ROWS, 0.0),
        "coefficient": None if at is None else -at,
    }


def unlearned(bench: Bench, vector: Vector, control: str) -> Cell:
    """sum_b lambda_b tau_b of the target's vector, learned on labelled rows of it and of the
    control."""
    tasks = (vector.task, control)

    def make() -> Made:
        rows = {task: (bench.head(task), bench.rows(task).labelled(PART)) for task in tasks}
        heads, parts = [head for head, _ in rows.values()], [data for _, data in rows.values()]
        module = ScaledEncoder(bench.backbone, [vector.task_vector(bench.backbone.digest)])
        data = joint_data(parts, heads)
        learned = learn(
            module,
            bench.backbone,
            JointHead.of(heads, [-1.0, 1.0]),
            data,
            learning_config("negation", len(data), bench.seed, ROWS * len(heads)),
            score=unlearning(module, bench.backbone, rows, [vector.task]),
        )
        return {"score": learned.score, "step": learned.step}, module.tau_dict()

    decides = bench.decided_by(
        *tasks,
        negated=vector.key,
        rows=[bench.content(task, PART) for task in tasks],
        classes=[bench.rows(task).classes for task in tasks],
        seed=bench.seed,
    )
    what = f"-{vector.task} but not {control}, seed {bench.seed}"
    return bench.cells.get("learned", decides, make, what)


def _coefficient(bench: Bench, vector: Vector, control: str) -> float:
    def on(task: str) -> Callable[[float], float]:
        return lambda c: _accuracy(bench, vector, task, "validation", -c)

    kept = on(control)
    return grid.lowest(on(vector.task), kept, grid.KEPT * kept(0.0))


def _accuracy(
    bench: Bench, direction: Direction, task: str, part: str, coefficient: float
) -> float:
    plain = coefficient == 0.0  # no pass along the direction is needed
    found = (
        bench.features(task, part) if plain else features(bench, direction, task, part, coefficient)
    )
    return right(bench, {task: found}, part)[task]


SPEC = Spec(
    "negation",
    ABOUT,
    COLUMNS,
    lambda suite: VARIANTS,
    entry,
    plots.bars,
    trainings=lambda variant: [TRAIN[variant.partition("-")[0]]],
)
