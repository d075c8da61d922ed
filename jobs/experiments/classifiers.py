"""Classifiers fitted on labelled rows: on f(x; theta0), without a vector, or under a model.

One number of each is chosen on validation rows, among all columns and with equal task weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from jobs.experiments import saw
from jobs.experiments.cache import Cell, Cost, Made, together
from jobs.experiments.context import Experiment
from jobs.experiments.methods import Merging, nothing
from jobs.experiments.models import Accuracies, Model, zero_shot
from tacl.evaluation import metrics
from tacl.heads.calibration import balanced_weights
from tacl.heads.probe import NEIGHBOURS, WEIGHT_DECAYS, Neighbours, chosen_probe, of_length_one
from tacl.heads.solve import LinearHead, Moments, Rows, expanded, lda, ridge

PARTS = ("train", "validation", "test")
RIDGES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4)  # of the mean variance; falling: ties take the largest
WIDTH = 2000  # of the random projection

Features = Callable[[str, str], Tensor]  # of a part of a task's rows, [N, D]
Logits = Callable[[Tensor], Tensor]  # of features_ND, over the columns of all given tasks


@dataclass(frozen=True)
class ClassifierRows:
    """The rows of some tasks that a classifier is fitted on."""

    seed: int
    classes: Mapping[str, tuple[str, ...]]
    train: Mapping[str, Rows]
    validation: Mapping[str, Rows]

    @staticmethod
    def of(experiment: Experiment, tasks: Sequence[str], features: Features) -> ClassifierRows:
        classes = {task: experiment.rows(task).classes for task in tasks}
        train, validation = (
            {task: (features(task, part), experiment.rows(task).labels_N(part)) for task in tasks}
            for part in ("train", "validation")
        )
        return ClassifierRows(experiment.seed, classes, train, validation)

    @property
    def names(self) -> list[str]:
        """Names of all columns."""
        return [name for classes in self.classes.values() for name in classes]

    @property
    def columns(self) -> dict[str, slice]:
        return columns_of(self.classes)

    def pooled(self, rows: Mapping[str, Rows]) -> Rows:
        """The rows of all tasks together; labels are numbers of columns."""
        shifted = [labels_N + self.columns[task].start for task, (_, labels_N) in rows.items()]
        return torch.cat([features_ND for features_ND, _ in rows.values()]), torch.cat(shifted)

    def score(self, logits: Logits) -> float:
        """Mean over tasks of the accuracy on validation rows, among all columns."""
        found = {
            task: metrics.accuracy(logits(features_ND), labels_N + self.columns[task].start)
            for task, (features_ND, labels_N) in self.validation.items()
        }
        return metrics.absolute(found)


def columns_of(classes: Mapping[str, tuple[str, ...]]) -> dict[str, slice]:
    """The columns of each task, among those of all tasks."""
    ends = pairwise(accumulate(map(len, classes.values()), initial=0))
    return {task: slice(*both) for task, both in zip(classes, ends, strict=True)}


Fit = Callable[[ClassifierRows, Sequence[float]], tuple[Logits, float]]


def logistic(given: ClassifierRows, weights: Sequence[float]) -> tuple[Logits, float]:
    """One softmax over all columns; validation rows choose its weight, by their cross-entropy."""
    train, validation = of_length_one(given.pooled(given.train)), given.pooled(given.validation)
    mass_N = balanced_weights(len(labels_N) for _, labels_N in given.validation.values())
    head, weight = chosen_probe(train, validation, given.names, weights=weights, mass_N=mass_N)
    return head.logits, weight


def solved(
    given: ClassifierRows,
    ridges: Sequence[float],
    solve: Callable[[Moments, float], LinearHead],
    train: Iterable[tuple[str, Rows]] | None = None,
) -> tuple[Logits, float]:
    """Solve in closed form, from statistics summed over rows; `train`: instead of its own rows."""
    moments = Moments.of(given.train.items() if train is None else train, given.classes)
    return _best(given, {number: solve(moments, number).logits for number in ridges})


def projected(given: ClassifierRows, ridges: Sequence[float]) -> tuple[Logits, float]:
    """RanPAC (arXiv 2307.02251) without its first session's training."""
    phi = partial(expanded, width=WIDTH, seed=given.seed)
    # One task at a time: a row has 2,000 numbers in double precision.
    train = ((task, (phi(f_ND.double()), of_N)) for task, (f_ND, of_N) in given.train.items())
    judged = {task: (phi(f_ND), labels_N) for task, (f_ND, labels_N) in given.validation.items()}
    logits, number = solved(replace(given, validation=judged), ridges, ridge, train)
    return lambda features_ND: logits(phi(features_ND)), number


def nearest(given: ClassifierRows, counts: Sequence[float]) -> tuple[Logits, float]:
    rows = given.pooled(given.train)
    return _best(given, {k: Neighbours.of(*rows, given.names, int(k)).logits for k in counts})


def _best(given: ClassifierRows, found: Mapping[float, Logits]) -> tuple[Logits, float]:
    """The classifier with the highest score; the first on ties."""
    best = max(found, key=lambda number: given.score(found[number]))
    return found[best], best


@dataclass(frozen=True)
class Classifier:
    """`fit` chooses a `number` from the `grid`."""

    name: str
    fit: Fit
    number: str
    grid: tuple[float, ...]


LOGISTIC = Classifier("logistic", logistic, "weight", WEIGHT_DECAYS)
CLASSIFIERS = (
    LOGISTIC,
    Classifier("lda", partial(solved, solve=lda), "ridge", RIDGES),
    Classifier("ranpac", projected, "ridge", RIDGES),
    Classifier("knn", nearest, "neighbours", NEIGHBOURS),
)


@dataclass(frozen=True)
class FittedClassifier(Merging):
    """A classifier on features of the model; `inner`: at theta0, with those of inner blocks."""

    classifier: Classifier = LOGISTIC
    inner: bool = False

    def judged(self, model: Model, tasks: Sequence[str], alone: bool = False) -> Cell:
        """Logits of the tasks' test rows, by one classifier that is fitted on their labelled rows.
        `alone`: under each task's own vector instead of under the model."""
        experiment, used = model.experiment, self.classifier
        features = model.alone if alone and not self.inner else self._features(model)
        given = ClassifierRows.of(experiment, tasks, features)
        test = {task: features(task, "test") for task in tasks}

        def made() -> Made:
            logits, number = used.fit(given, used.grid)
            return {used.number: number}, {task: logits(test[task]) for task in tasks}

        rows = [[experiment.content(task, part) for part in PARTS] for task in tasks]
        own: dict[str, Any] = {"seed": experiment.seed, "grid": used.grid, "width": WIDTH}
        if alone and model.first:
            own["under"] = [model.first[task].key for task in tasks]
        elif model.direction is not None:
            own["under"] = [model.direction.key, model.coefficient]
        if self.inner:
            own["inner"] = list(experiment.backbone.inner)
        what = f"of {' and '.join(tasks)}, {self.name}"
        return experiment.cell("classifier", made, what, classifier=used.name, rows=rows, **own)

    def accuracies(self, model: Model) -> tuple[Accuracies, Cell]:
        """Individual: fitted on the task's rows alone, under its own vector. Merged: the task's
        columns of the one classifier of all tasks, whose cell is returned too."""
        experiment, pool = model.experiment, model.experiment.pool
        whole = self.judged(model, pool)
        columns = columns_of({task: experiment.rows(task).classes for task in pool})
        logits = whole.tensors()
        # A single training for all tasks has no single-task models.
        single = pool if model.first or not model.has_vectors else []
        alone = {t: self.judged(model, [t], alone=True).tensors()[t] for t in single}
        labels = {task: experiment.rows(task).labels_N("test") for task in pool}
        individual = {t: metrics.accuracy(own_NC, labels[t]) for t, own_NC in alone.items()}
        known = {t: metrics.correct(logits[t][:, columns[t]], labels[t]) for t in pool}
        unknown = {t: metrics.correct(logits[t], labels[t] + columns[t].start) for t in pool}
        return Accuracies(zero_shot(experiment, pool, "test"), individual, known, unknown), whole

    def _features(self, model: Model) -> Features:
        return model.experiment.plain if self.inner else model.features

    def cost(self, model: Model, whole: Cell) -> Cost:
        """The cost of encoding the labelled rows once, and of the fit."""
        experiment, parts = (
            model.experiment,
            [(t, part) for t in model.experiment.pool for part in PARTS[:2]],
        )
        seen = [] if self.inner else [cell for one in parts for cell in model.passes(*one)]
        seen += [experiment.seen_plain(*one) for one in parts] if self.inner else []
        return together([*(cell.cost for cell in seen), whole.cost])


FROZEN: dict[str, FittedClassifier] = {
    name: FittedClassifier(name, None, saw.ALL_LABELS, saw.VALIDATION, nothing, "none", one, inner)
    for name, one, inner in (
        *((f"frozen-{one.name}", one, False) for one in CLASSIFIERS),
        ("frozen-inner-logistic", LOGISTIC, True),
    )
}
