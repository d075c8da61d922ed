"""Negation: theta0 - c tau of one target task, and its effect on a control set.

With aTLAS there is one coefficient for each block of the target's vector (`tacl.compose.negation`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from jobs.experiments import plots, saw
from jobs.experiments.cache import Cell, Made
from jobs.experiments.context import Experiment
from jobs.experiments.merging import PART, supervised_atlas  # rows of target and control
from jobs.experiments.methods import linear, ordinary, tau_jp
from jobs.experiments.models import Direction, KeptDirection, Model, TrainedVector, task_accuracies
from jobs.experiments.table import Entry, Method, Numbers, Spec, figures, means_of, shares
from tacl.compose import grid

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
    *shares(target="target", control="control"),
    *shares(target_zero_shot="target, pre-trained", control_zero_shot="control, pre-trained"),
    *figures(coefficient="coefficient"),
)


@dataclass(frozen=True)
class Negating(Method):
    """`tuned`: how the coefficients are found; without it, the coefficient is -1."""

    tuned: Literal["", "grid", "atlas"] = ""


METHODS = (
    Negating("linear", linear, saw.LABELS, saw.NOTHING),
    Negating("taujp", tau_jp, saw.PENALISED, saw.NOTHING),
    Negating("linear-grid", linear, saw.LABELS, saw.VALIDATION, "grid"),
    Negating("taujp-grid", tau_jp, saw.PENALISED, saw.VALIDATION, "grid"),
    Negating("linear-atlas", linear, saw.LABELS, saw.VALIDATION, "atlas"),
    Negating("taujp-atlas", tau_jp, saw.PENALISED, saw.VALIDATION, "atlas"),
    Negating("ordinary", ordinary, saw.LABELS, saw.NOTHING),
    Negating("ordinary-atlas", ordinary, saw.LABELS, saw.VALIDATION, "atlas"),
)


def entry(experiment: Experiment, method: Negating) -> Entry:
    control, vectors = experiment.suite.generics[0], method.vectors(experiment)
    tasks: dict[str, Numbers] = {}
    costs = []
    for task, vector in vectors.items():
        direction, coefficient = vector, -1.0
        if method.tuned == "atlas":
            cell = unlearned(experiment, vector, control)
            direction, coefficient = KeptDirection(cell, vector.regime), 1.0
            costs.append(cell.cost)
        elif method.tuned == "grid":
            coefficient = -_coefficient(experiment, vector, control)
        tasks[task] = {
            "target": _accuracy(experiment, direction, task, "test", coefficient),
            "control": _accuracy(experiment, direction, control, CONTROL_ROWS, coefficient),
            "target_zero_shot": _accuracy(experiment, direction, task, "test", 0.0),
            "control_zero_shot": _accuracy(experiment, direction, control, CONTROL_ROWS, 0.0),
            "coefficient": None if method.tuned == "atlas" else -coefficient,
        }
    means = means_of(tasks)
    training = [vector.cost for vector in vectors.values()]
    return method.entry(experiment, means, tasks, training=training, merging=costs)


def unlearned(experiment: Experiment, vector: TrainedVector, control: str) -> Cell:
    """sum_b lambda_b tau_b of the target's vector, learned on labelled rows of the target and of
    the control."""
    tasks = (vector.task, control)

    def make() -> Made:
        module, found = supervised_atlas(experiment, [vector], tasks, 0.0, unlearned=vector.task)
        return {"score": found.score, "step": found.step}, module.tau_dict()

    return experiment.cell(
        "learned",
        make,
        f"-{vector.task} but not {control}",
        *tasks,
        negated=vector.key,
        rows=[experiment.content(task, PART) for task in tasks],
        classes=[experiment.rows(task).classes for task in tasks],
        seed=experiment.seed,
    )


def _coefficient(experiment: Experiment, vector: TrainedVector, control: str) -> float:
    def on(task: str) -> Callable[[float], float]:
        return lambda c: _accuracy(experiment, vector, task, "validation", -c)

    kept = cache(on(control))
    return grid.lowest(on(vector.task), kept, grid.KEPT * kept(0.0))


def _accuracy(
    experiment: Experiment, direction: Direction, task: str, part: str, coefficient: float
) -> float:
    moved = direction if coefficient else None  # no pass along it is needed for 0
    model = Model(experiment, direction=moved, coefficient=coefficient)
    return task_accuracies(experiment, {task: model.features(task, part)}, part)[task]


SPECS = (Spec("negation", ABOUT, COLUMNS, lambda suite: METHODS, entry, plots.bars),)
