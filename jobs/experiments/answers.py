"""Heads as a cluster fits them again: on labelled rows under drawn sums of all vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jobs.experiments.cache import Cell, Made
from jobs.experiments.context import Bench
from jobs.experiments.cost import Cost
from jobs.experiments.models import Accuracies, Model, Vectors
from jobs.experiments.spec import Method
from tacl.evaluation import metrics
from tacl.heads.fitting import Rows, answering_heads
from tacl.heads.head import Head, beside
from tacl.models.sums import Sums

PARTS = ("train:2000", "validation")  # at most so many rows of a task, as in a cluster


@dataclass(frozen=True)
class Answering(Method):
    """`make` makes the model of the vectors; its heads are fitted under sums of these."""

    make: Callable[[Bench, Vectors], Model]
    coefficients: str = "1"

    def accuracies(self, model: Model) -> tuple[Accuracies, Cell]:
        """Individual: each task's own vector alone, with the same head."""
        bench, pool = model.bench, model.bench.pool
        cell = fitted(bench, model.first)
        heads = {task: _head(bench, cell, task) for task in pool}
        labels = {task: bench.rows(task).labels_N("test") for task in pool}
        at_theta0 = {task: bench.features(task, "test") for task in pool}
        merged = {t: beside(at_theta0[t], model.features(t, "test")) for t in pool}
        own = {t: beside(at_theta0[t], model.alone(t, "test")) for t in pool}
        trained = {task: bench.head(task) for task in pool}
        return Accuracies(
            {t: metrics.accuracy(trained[t].logits(at_theta0[t]), labels[t]) for t in pool},
            {t: metrics.accuracy(heads[t].logits(own[t]), labels[t]) for t in pool},
            {t: metrics.accuracy(heads[t].logits(merged[t]), labels[t]) for t in pool},
            metrics.class_incremental(merged, labels, heads),
        ), cell

    def model(self, bench: Bench) -> Model:
        return self.make(bench, self.vectors(bench))

    def cost(self, bench: Bench, cell: Cell) -> Cost:
        return cell.cost


def fitted(bench: Bench, vectors: Vectors) -> Cell:
    """Weights of the heads of all tasks; the scale that they share is a fact."""
    seen = {part: {task: _seen(bench, vectors, task, part) for task in vectors} for part in PARTS}

    def make() -> Made:
        trained = {task: bench.head(task) for task in vectors}
        parts = (
            {task: _rows(bench, part, seen[part][task], task) for task in vectors} for part in PARTS
        )
        heads = answering_heads(trained, *parts)
        (scale,) = {head.scale for head in heads.values()}
        return {"scale": scale}, {task: head.weight_CD for task, head in heads.items()}

    keys = [cell.key for cells in seen.values() for cell in cells.values()]
    decides = bench.decided_by(*vectors, seen=keys)
    return bench.cells.get("heads", decides, make, f"of {len(vectors)} tasks, seed {bench.seed}")


def _seen(bench: Bench, vectors: Vectors, task: str, part: str) -> Cell:
    """Rows of a part of a task, at theta0 and under sums."""
    rows = bench.rows(task)

    def make() -> Made:
        sums = Sums(bench.base.module, bench.backbone, {t: v.tau() for t, v in vectors.items()})
        plain_ND, moved_ND = sums.features(task, rows.items(part))
        return {}, {"plain": plain_ND, "moved": moved_ND}

    keys = {name: vector.key for name, vector in vectors.items()}
    decides = bench.decided_by(task=task, vectors=keys, data=bench.content(task, part))
    return bench.cells.get("seen", decides, make, f"of {task}, {part}, seed {bench.seed}")


def _rows(bench: Bench, part: str, cell: Cell, task: str) -> tuple[Rows, Rows]:
    found, labels_N = cell.tensors(), bench.rows(task).labels_N(part)
    return Rows(found["plain"], labels_N), Rows(found["moved"], labels_N)


def _head(bench: Bench, cell: Cell, task: str) -> Head:
    return Head(cell.tensors()[task], cell.facts["scale"], bench.rows(task).classes)
