"""What a column of a table evaluates: a merged model, and the single-task models behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from jobs.experiments.cache import Made
from jobs.experiments.context import Bench
from jobs.experiments.cost import Cost, together
from jobs.experiments.directions import Direction, Sum, Vector, features
from tacl.compose import grid
from tacl.evaluation import metrics

Vectors = Mapping[str, Vector]  # by task
GRID_ROWS = "validation:100"  # of each task: an ordinary model is run at every one of 21 points


@dataclass(frozen=True)
class Model:
    """theta0 moved along a direction, the same for all tasks.

    `first` are the single-task vectors by the same method, before any refresh. Without a direction
    it is each of these alone; without vectors it is theta0. `facts` are worth knowing of it.
    """

    bench: Bench
    first: Vectors = field(default_factory=dict)
    direction: Direction | None = None
    coefficient: float = 1.0
    training: Cost = field(default_factory=Cost)
    merging: Cost = field(default_factory=Cost)
    facts: dict[str, Any] = field(default_factory=dict)

    def features(self, task: str, part: str) -> Tensor:
        """Of the merged model, [N, D]."""
        if self.direction is None:
            return self.alone(task, part)
        return features(self.bench, self.direction, task, part, self.coefficient)

    def alone(self, task: str, part: str) -> Tensor:
        """Of the single-task model."""
        if task not in self.first:
            return self.bench.features(task, part)
        return features(self.bench, self.first[task], task, part)


def apart(bench: Bench, first: Vectors) -> Model:
    """A model for each task."""
    return Model(bench, first, training=together([vector.cost for vector in first.values()]))


def summed(bench: Bench, first: Vectors, now: Vectors) -> Model:
    """sum_t tau_t over the vectors as they are `now`."""
    later = together([vector.later for vector in now.values()])
    direction = Sum([(1.0, vector) for vector in now.values()])
    return replace(apart(bench, first), direction=direction, merging=later)


def on_grid(model: Model) -> Model:
    """The same at the one coefficient, of 21 on [0, 1], that validation rows like best.

    An ordinary model is judged on some of them.
    """
    bench, direction = model.bench, model.direction
    assert direction is not None
    linear = direction.regime == "linearized"
    part = "validation" if linear else GRID_ROWS

    def make() -> Made:
        def score(coefficient: float) -> float:
            if linear:
                found = {t: features(bench, direction, t, part, coefficient) for t in bench.pool}
            else:
                tau = Sum([(coefficient, direction)]).tau()
                found = {t: bench.base.encoded(bench.rows(t).items(part), tau) for t in bench.pool}
            return metrics.absolute(right(bench, found, part))

        return {"coefficient": grid.best(score)}, {}

    contents = [bench.content(task, part) for task in bench.pool]
    what = f"of the sum of {len(model.first)}"
    cell = bench.cell("grid", make, what, direction=direction.key, data=contents)
    merging = together([model.merging, cell.cost])
    best = cell.facts["coefficient"]
    return replace(model, coefficient=best, merging=merging, facts=model.facts | cell.facts)


@dataclass(frozen=True)
class Accuracies:
    """Shares of right test rows of each task; no individual ones without single-task models."""

    zero_shot: dict[str, float]
    individual: dict[str, float]
    merged: dict[str, float]
    class_incremental: dict[str, float]


def accuracies(model: Model, part: str = "test") -> Accuracies:
    """On the rows of the pool."""
    bench, pool = model.bench, model.bench.pool
    merged = {task: model.features(task, part) for task in pool}
    return Accuracies(
        right(bench, {task: bench.features(task, part) for task in pool}, part),
        right(bench, {task: model.alone(task, part) for task in model.first}, part),
        right(bench, merged, part),
        class_incremental(bench, merged, part),
    )


def class_incremental(bench: Bench, found: Mapping[str, Tensor], part: str) -> dict[str, float]:
    """Accuracy of features on a part of each task's rows, among the classes of all tasks."""
    labels = {task: bench.rows(task).labels_N(part) for task in found}
    return metrics.class_incremental(found, labels, {task: bench.head(task) for task in found})


def right(bench: Bench, found: Mapping[str, Tensor], part: str) -> dict[str, float]:
    """Accuracy of features on a part of each task's rows, each with its own head."""
    return {
        task: metrics.accuracy(
            bench.head(task).logits(features_ND), bench.rows(task).labels_N(part)
        )
        for task, features_ND in found.items()
    }
