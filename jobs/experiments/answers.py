"""Heads as a cluster fits them again: on labelled rows under drawn sums of all vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jobs.experiments.cache import Cell, Made
from jobs.experiments.context import Bench
from jobs.experiments.cost import Cost
from jobs.experiments.models import Accuracies, Model, Vectors
from jobs.experiments.spec import Method
from tacl.data.splits import sample_rows
from tacl.evaluation import metrics
from tacl.heads.fitting import Rows, fitted_heads
from tacl.heads.head import Head
from tacl.models.sums import Sums

MOST_ROWS = 2000  # of a task, as in a cluster


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
        merged = {task: model.features(task, "test") for task in pool}
        own = {task: model.alone(task, "test") for task in pool}
        at_theta0 = {task: bench.features(task, "test") for task in pool}
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

    def make() -> Made:
        sums = Sums(bench.base.module, bench.backbone, {t: v.tau() for t, v in vectors.items()})
        trained = {task: bench.head(task) for task in vectors}
        parts = []
        for part in ("train", "validation"):
            seen = {}
            for task in vectors:
                bench.cells.say(f"rows under sums: {part} of {task}")
                rows = bench.rows(task).labelled(part)
                chosen = sample_rows(range(len(rows)), MOST_ROWS, bench.seed)
                _, features_ND = sums.features(task, [rows.items[row] for row in chosen])
                seen[task] = Rows(features_ND, rows.labels[chosen])
            parts.append(seen)
        heads = fitted_heads(trained, *parts)
        (scale,) = {head.scale for head in heads.values()}
        return {"scale": scale}, {task: head.weight_CD for task, head in heads.items()}

    rows = [[bench.content(task, part) for part in ("train", "validation")] for task in vectors]
    keys = [vector.key for vector in vectors.values()]
    decides = bench.decided_by(*vectors, vectors=keys, rows=rows, most=MOST_ROWS, seed=bench.seed)
    return bench.cells.get("heads", decides, make, f"of {len(keys)} tasks, seed {bench.seed}")


def _head(bench: Bench, cell: Cell, task: str) -> Head:
    return Head(cell.tensors()[task], cell.facts["scale"], bench.rows(task).classes)
