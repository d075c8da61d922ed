"""Heads as a cluster fits them again: on labelled rows under drawn sums of all vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from jobs.experiments.cache import Cell, Cost, Made, together
from jobs.experiments.context import Bench
from jobs.experiments.methods import Merging
from jobs.experiments.models import Accuracies, Model, Vectors
from tacl.evaluation import metrics
from tacl.heads.fitting import LabelledFeatures, answering_heads, frozen_heads
from tacl.heads.head import Head, beside
from tacl.heads.novelty import Novelty
from tacl.models.sums import Sums

Features = Mapping[str, Tensor]  # of every task, [N, D]; or labels, [N]
AtTheta0 = Callable[[str, str], Tensor]  # rows of a part of a task at theta0, [N, E]
PARTS = ("train:3000", "validation")  # at most so many rows of a task, as in a cluster
FROZEN = ("train:4000", "validation")  # the same at theta0


@dataclass(frozen=True)
class Answering(Merging):
    """The heads of the model are fitted under sums of its vectors. `inner`: they read inner blocks
    too, as in a cluster."""

    inner: bool = False

    def accuracies(self, model: Model) -> tuple[Accuracies, Cell]:
        """Individual: each task's own vector alone, with the same head."""
        bench, pool = model.bench, model.bench.pool
        at = self._at_theta0(bench)
        cell = fitted(bench, self.added(bench), at)
        heads = {task: _head(bench, cell, task) for task in pool}
        labels = {task: bench.rows(task).labels_N("test") for task in pool}
        at_theta0 = {task: bench.features(task, "test") for task in pool}
        plain = {task: at(task, "test") for task in pool}
        merged = {t: beside(plain[t], model.features(t, "test")) for t in pool}
        own = {t: beside(plain[t], model.alone(t, "test")) for t in pool}
        trained = {task: bench.head(task) for task in pool}
        return Accuracies(
            {t: metrics.accuracy(trained[t].logits(at_theta0[t]), labels[t]) for t in pool},
            {t: metrics.accuracy(heads[t].logits(own[t]), labels[t]) for t in pool},
            {t: metrics.right(heads[t].logits(merged[t]), labels[t]) for t in pool},
            metrics.right_among_all(merged, labels, heads),
        ), replace(cell, facts={**cell.facts, **_judged(bench, cell, merged, labels, at)})

    def _at_theta0(self, bench: Bench) -> AtTheta0:
        return bench.plain if self.inner else bench.features

    def cost(self, model: Model, cell: Cell) -> Cost:
        """Of passes over the labelled rows at theta0 and under sums, and of the fit."""
        bench, vectors = model.bench, self.added(model.bench)
        at_theta0 = bench.seen_plain if self.inner else bench.encoding
        seen = [_seen(bench, vectors, task, part) for task in vectors for part in PARTS]
        parts = dict.fromkeys((*PARTS, *FROZEN))
        seen += [at_theta0(task, part) for task in vectors for part in parts]
        return together([*(one.cost for one in seen), cell.cost])


def fitted(bench: Bench, vectors: Vectors, at: AtTheta0) -> Cell:
    """Weights of the heads of all tasks; the scale that they share is a fact."""
    seen = {part: {task: _seen(bench, vectors, task, part) for task in vectors} for part in PARTS}
    for task in vectors:  # before the fit, whose cost is its own
        for part in dict.fromkeys((*PARTS, *FROZEN)):
            at(task, part)
    _generic(bench, at)

    def make() -> Made:
        trained = {task: bench.head(task) for task in vectors}
        parts = (
            {task: _rows(bench, part, seen[part][task], task, at) for task in vectors}
            for part in PARTS
        )
        train, validation = (
            {task: _plain(bench, part, task, at) for task in vectors} for part in FROZEN
        )
        frozen, novelty = frozen_heads(trained, train, validation, _generic(bench, at))
        heads = answering_heads(trained, frozen, *parts)
        (scale,) = {head.scale for head in heads.values()}
        told = {f"novelty {name}": value for name, value in novelty.to_params().items()}
        return {"scale": scale}, told | {task: head.weight_CD for task, head in heads.items()}

    keys = [cell.key for cells in seen.values() for cell in cells.values()]
    frozen = [bench.content(task, part) for task in vectors for part in FROZEN]
    frozen += [bench.content(bench.suite.generics[0], "shard")]
    inner = {"inner": list(bench.backbone.inner)} if at == bench.plain else {}
    decides = bench.decided_by(*vectors, seen=keys, frozen=frozen, **inner)
    return bench.cells.get("heads", decides, make, f"of {len(vectors)} tasks, seed {bench.seed}")


def _judged(
    bench: Bench, cell: Cell, merged: Features, labels: Features, at: AtTheta0
) -> dict[str, float]:
    """Of the probabilities of the sum, task unknown; and how well rows of none are told from own
    ones: of the one task that a model lacks, mean over these models, and of the generic samples."""
    tensors, heads = cell.tensors(), {task: _head(bench, cell, task) for task in merged}
    told = {n.removeprefix("novelty "): v for n, v in tensors.items() if n.startswith("novelty ")}
    novelty, (_, generic_NE) = Novelty.from_params(told), _generic(bench, at)
    plain = {task: at(task, "test") for task in merged}
    return {
        "calibration_error": metrics.joint_calibration(merged, labels, heads),
        "none_auroc": metrics.absolute(
            {
                task: novelty.area({t: f for t, f in plain.items() if t != task}, foreign_NE)
                for task, foreign_NE in plain.items()
            }
        ),
        "none_auroc_generic": novelty.area(plain, generic_NE),
    }


def _generic(bench: Bench, at: AtTheta0) -> tuple[Tensor, Tensor]:
    """Samples of no task at theta0, to learn from and to judge by."""
    learned_NE, judged_NE = (at(bench.suite.generics[0], part) for part in ("shard", "probe"))
    return learned_NE, judged_NE


def _seen(bench: Bench, vectors: Vectors, task: str, part: str) -> Cell:
    """Rows of a part of a task under sums."""
    rows = bench.rows(task)

    def make() -> Made:
        tau_of = lambda name: vectors[name].tau()  # noqa: E731
        sums = Sums(bench.base.module, bench.backbone, [*vectors], tau_of)
        return {}, {"moved": sums.features(task, rows.items(part))}

    keys = {name: vector.key for name, vector in vectors.items()}
    decides = bench.decided_by(task=task, vectors=keys, data=bench.content(task, part))
    return bench.cells.get("seen", decides, make, f"of {task}, {part}, seed {bench.seed}")


def _rows(
    bench: Bench, part: str, cell: Cell, task: str, at: AtTheta0
) -> tuple[LabelledFeatures, LabelledFeatures]:
    plain = _plain(bench, part, task, at)
    return plain, LabelledFeatures(cell.tensors()["moved"], plain.labels_N)


def _plain(bench: Bench, part: str, task: str, at: AtTheta0) -> LabelledFeatures:
    return LabelledFeatures(at(task, part), bench.rows(task).labels_N(part))


def _head(bench: Bench, cell: Cell, task: str) -> Head:
    return Head(cell.tensors()[task], cell.facts["scale"], bench.rows(task).classes)
