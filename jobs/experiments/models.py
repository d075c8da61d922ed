"""The models that tables evaluate: a merged model, and the single-task models that it is made of.

A model is theta0 moved along a direction: a vector, a sum of vectors, or a merge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from jobs.experiments.cache import Cell, Cost, Made, key_of, together
from jobs.experiments.context import Experiment
from tacl.backbone import Item
from tacl.compose import grid
from tacl.evaluation import metrics
from tacl.heads.head import Head
from tacl.vectors import Params, Regime, TaskVector, params


@dataclass(frozen=True)
class KeptDirection:
    """A direction in a cell: a merge, or joint training. `key` identifies all that determined it;
    `regime` is that of the model in which it is evaluated."""

    cell: Cell
    regime: Regime

    @property
    def key(self) -> str:
        return self.cell.key

    def tau(self) -> Params:
        return self.cell.tensors()


@dataclass(frozen=True)
class TrainedVector(KeptDirection):
    """The vector of a task. `cost` is that of its training, `later` that of its refreshes;
    `refresh` is the last of them, accepted or not; `first` is the vector before all of them."""

    task: str
    cost: Cost
    later: Cost
    refresh: Cell | None = None
    first: Cell | None = None


def task_vectors(experiment: Experiment, vectors: Iterable[TrainedVector]) -> list[TaskVector]:
    base = experiment.backbone.digest
    return [TaskVector.of_params(v.task, base, v.regime, v.tau()) for v in vectors]


@dataclass(frozen=True)
class Sum:
    """sum_t c_t tau_t as one direction: evaluated once instead of term by term."""

    terms: Sequence[tuple[float, Direction]]

    @property
    def key(self) -> str:
        if len(self.terms) == 1 and self.terms[0][0] == 1.0:
            return self.terms[0][1].key
        return key_of("sum", {"terms": [[c, direction.key] for c, direction in self.terms]})

    @property
    def regime(self) -> Regime:
        return self.terms[0][1].regime

    def tau(self) -> Params:
        return params.combine([(c, direction.tau()) for c, direction in self.terms])


Direction = KeptDirection | Sum


def tangent(experiment: Experiment, direction: Direction, task: str, part: str) -> Tensor:
    """J(x) tau on a part of a task's rows, [N, D]."""
    return tangent_cell(experiment, direction, task, part).tensors()["tangent"]


def tangent_cell(experiment: Experiment, direction: Direction, task: str, part: str) -> Cell:
    """The cell of `tangent`: one dual pass."""

    def make() -> Made:
        items, taus = experiment.rows(task).items(part), {"tau": direction.tau()}
        return {}, {"tangent": experiment.base.tangents(items, taus).tangents["tau"]}

    what, data = f"{direction.key[:8]} on {part} of {task}", experiment.content(task, part)
    return experiment.cell("tangent", make, what, data=data, tau=direction.key)


def features_of(
    experiment: Experiment, direction: Direction | None, items: Sequence[Item]
) -> Tensor:
    """Features of any inputs, [N, D]; not stored in a cell."""
    if direction is None or direction.regime == "ordinary":
        return experiment.base.encoded(items, direction and direction.tau())
    return experiment.base.tangents(items, {"tau": direction.tau()}).linearized({"tau": 1.0})


Vectors = Mapping[str, TrainedVector]  # by task
GRID_ROWS = "validation:100"  # of each task: an ordinary model needs a pass for each of 21 points


@dataclass(frozen=True)
class Model:
    """theta0 moved along a direction, the same for all tasks.

    `first` are the single-task vectors by the same method, before any refresh. Without a direction,
    each task has its own vector; without vectors, it is theta0. `facts` are shown in the table.
    """

    experiment: Experiment
    first: Vectors = field(default_factory=dict)
    direction: Direction | None = None
    coefficient: float = 1.0
    training: Cost = field(default_factory=Cost)
    merging: Cost = field(default_factory=Cost)
    facts: dict[str, Any] = field(default_factory=dict)

    def features(self, task: str, part: str) -> Tensor:
        """f(x; theta0) + c J(x) tau, the sum of stored cells; or f(x; theta0 + c tau), by a pass,
        [N, D]."""
        plain, *moved = self.passes(task, part)
        features_ND = plain.tensors()["features"]
        for cell in moved:
            features_ND = features_ND + self.coefficient * cell.tensors()["tangent"]
        return features_ND

    @property
    def has_vectors(self) -> bool:
        """Whether it differs from theta0."""
        return bool(self.first) or self.direction is not None

    def passes(self, task: str, part: str) -> list[Cell]:
        """The cells from which `features` are computed."""
        experiment, coefficient = self.experiment, self.coefficient
        direction = self.first.get(task) if self.direction is None else self.direction
        if direction is None:
            return [experiment.encoding(task, part)]
        if direction.regime == "linearized":
            return [
                experiment.encoding(task, part),
                tangent_cell(experiment, direction, task, part),
            ]
        moved = direction if coefficient == 1.0 else Sum([(coefficient, direction)])
        return [experiment.encoding(task, part, moved.tau, moved.key)]

    def alone(self, task: str, part: str) -> Tensor:
        """Features of a task's rows under its own vector, [N, D]."""
        return Model(self.experiment, self.first).features(task, part)


def individual_models(experiment: Experiment, first: Vectors) -> Model:
    """A model for each task."""
    return Model(experiment, first, training=together([vector.cost for vector in first.values()]))


def summed(experiment: Experiment, first: Vectors, now: Vectors) -> Model:
    """sum_t tau_t over the vectors `now`, after any refresh."""
    later = together([vector.later for vector in now.values()])
    direction = Sum([(1.0, vector) for vector in now.values()])
    return replace(individual_models(experiment, first), direction=direction, merging=later)


def on_grid(model: Model) -> Model:
    """The model with the coefficient, of 21 on [0, 1], that is best on validation rows.

    For an ordinary model only some of these rows are used.
    """
    experiment, direction = model.experiment, model.direction
    assert direction is not None
    linear = direction.regime == "linearized"
    part = "validation" if linear else GRID_ROWS

    def make() -> Made:
        def score(coefficient: float) -> float:
            if linear:
                at = replace(model, coefficient=coefficient)
                found = {task: at.features(task, part) for task in experiment.pool}
            else:
                tau = Sum([(coefficient, direction)]).tau()
                found = {
                    t: experiment.base.encoded(experiment.rows(t).items(part), tau)
                    for t in experiment.pool
                }
            return metrics.absolute(task_accuracies(experiment, found, part))

        return {"coefficient": grid.best(score)}, {}

    contents = [experiment.content(task, part) for task in experiment.pool]
    what = f"of the sum of {len(model.first)}"
    cell = experiment.cell("grid", make, what, direction=direction.key, data=contents)
    merging = together([model.merging, cell.cost])
    best = cell.facts["coefficient"]
    return replace(model, coefficient=best, merging=merging, facts=model.facts | cell.facts)


@dataclass(frozen=True)
class Accuracies:
    """Shares of right test rows of each task; no individual ones without single-task models. For
    the merged model, which rows are right: with the task `known`, or `unknown`, bool [N]."""

    zero_shot: dict[str, float]
    individual: dict[str, float]
    known: dict[str, Tensor]
    unknown: dict[str, Tensor]

    @property
    def merged(self) -> dict[str, float]:
        return metrics.shares(self.known)

    @property
    def class_incremental(self) -> dict[str, float]:
        return metrics.shares(self.unknown)


def accuracies(model: Model) -> Accuracies:
    """Accuracies of a model on the test rows of the pool."""
    experiment, pool = model.experiment, model.experiment.pool
    merged = {task: model.features(task, "test") for task in pool}
    alone = {task: model.alone(task, "test") for task in model.first}
    return with_heads(experiment, {task: experiment.head(task) for task in pool}, merged, alone)


def with_heads(
    experiment: Experiment,
    heads: Mapping[str, Head],
    merged: Mapping[str, Tensor],
    alone: Mapping[str, Tensor],
) -> Accuracies:
    """Accuracies of test rows with these heads, given features of the merged and single models."""
    labels = {task: experiment.rows(task).labels_N("test") for task in experiment.pool}
    return Accuracies(
        zero_shot(experiment, experiment.pool, "test"),
        {t: metrics.accuracy(heads[t].logits(f_ND), labels[t]) for t, f_ND in alone.items()},
        {t: metrics.correct(heads[t].logits(merged[t]), labels[t]) for t in experiment.pool},
        metrics.correct_among_all(merged, labels, heads),
    )


def zero_shot(experiment: Experiment, tasks: Sequence[str], part: str) -> dict[str, float]:
    """The accuracy at theta0 on a part of each task's rows."""
    return task_accuracies(
        experiment, {task: experiment.features(task, part) for task in tasks}, part
    )


def task_accuracies(
    experiment: Experiment, found: Mapping[str, Tensor], part: str
) -> dict[str, float]:
    """Accuracy of features on a part of each task's rows, each with its own head."""
    logits = {
        task: experiment.head(task).logits(features_ND) for task, features_ND in found.items()
    }
    labels = {task: experiment.rows(task).labels_N(part) for task in found}
    return {task: metrics.accuracy(logits[task], labels[task]) for task in found}
