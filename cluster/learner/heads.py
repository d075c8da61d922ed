"""Heads of all champions fitted again, together, on labelled rows under sums of their vectors."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from cluster.domain.base import BlobRef, identity
from cluster.domain.outcomes import GivesWay
from cluster.domain.work import FitTask, Fitted, FittedHead, FitWork
from cluster.learner.artifacts import Materials
from cluster.learner.progress import Tell
from cluster.learner.seen_rows import Seen, due, kept, read, write
from cluster.storage.home import Home
from cluster.storage.samples import Raw, labelled_rows, probe_inputs, training_inputs
from tacl.data.splits import sample_rows
from tacl.evaluation import metrics
from tacl.heads.fitting import Rows, answering_heads, frozen_heads, views
from tacl.heads.head import Head
from tacl.heads.novelty import GENERIC
from tacl.models.sums import Sums

MOST_ROWS = 2000  # of one part of one task, under sums: a dual pass each
FROZEN_ROWS = 4000  # of a task's training rows at theta0: a forward pass each, once and for all
AGAIN = 1000  # rows of all tasks together that one fit measures again

Pair = tuple[Rows, Rows]  # at theta0, and under sums


def fit(work: FitWork, home: Home, tell: Tell, device: str = "cpu") -> Fitted:
    """Heads of every task of the work, in its order, and what validation rows say of them. Gives
    way between two tasks: rows that were passed lie in the cache, and it begins again with them."""
    started = time.monotonic()
    if not work.tasks:  # ordinary vectors alone: they do not add up with anything
        return Fitted(heads=(), metrics={})
    materials = Materials(home, work.base, device)
    seeing = Seeing(materials, work, home.path / "cache" / "heads")
    train: dict[str, Pair] = {}
    validation: dict[str, Pair] = {}
    at_theta0: dict[str, Rows] = {}
    for done, task in enumerate(work.tasks, 1):
        train[task.vector.task] = seeing.rows(task, task.train)
        validation[task.vector.task] = seeing.rows(task, task.validation)
        at_theta0[task.vector.task] = seeing.frozen(task)
        if tell(done, len(work.tasks), None) and done < len(work.tasks):
            raise GivesWay
    trained = {task.vector.task: materials.head(task.vector.head_blob) for task in work.tasks}
    frozen, novelty = frozen_heads(
        trained, at_theta0, _at_theta0(validation), seeing.generic(home.founded().generic)
    )
    fitted = answering_heads(trained, frozen, train, validation)
    known = _accuracies(fitted, views(validation))
    frozen_known = _accuracies(frozen, _at_theta0(validation))
    heads = tuple(
        FittedHead(
            task=name,
            vector=task.vector.digest,
            head=materials.put_head(fitted[name]),
            frozen=materials.put_head(frozen[name]),
            accuracy=known[name],
            frozen_accuracy=frozen_known[name],
        )
        for task in work.tasks
        for name in [task.vector.task]
    )
    figures = {
        "known": metrics.absolute(known),
        "unknown": _unknown(fitted, views(validation)),
        "frozen_known": metrics.absolute(frozen_known),
        "frozen_unknown": _unknown(frozen, _at_theta0(validation)),
        "rows": sum(len(pair[0].labels_N) for pair in train.values()),
        "seconds": time.monotonic() - started,
    }
    return Fitted(heads=heads, novelty=materials.put_novelty(novelty), metrics=figures)


class Seeing:
    """Rows of the tasks of a work; what was measured before is in `folder`."""

    def __init__(self, materials: Materials, work: FitWork, folder: Path) -> None:
        self._materials, self._work, self._folder = materials, work, folder
        taus = {task.vector.task: materials.vector(task.vector).to_params() for task in work.tasks}
        self._sums = Sums(materials.linearized(), materials.backbone, taus)

    def rows(self, task: FitTask, part: BlobRef) -> Pair:
        name, (raws, labels) = task.vector.task, labelled_rows(self._materials.blobs, part)
        file = self._file("rows", name, part)
        seen = read(file)
        chosen = sample_rows(range(len(raws)), MOST_ROWS, 0)
        turn = 1 + max((one.turn for one in seen.values()), default=0)
        if wanted := due(seen, chosen, AGAIN // len(self._work.tasks)):
            items = self._materials.prepared([raws[row] for row in wanted])
            found = self._sums.features(name, items, turn - 1)
            pairs = zip(wanted, *found, strict=True)
            seen |= {row: Seen(turn, plain_D, moved_D) for row, plain_D, moved_D in pairs}
            write(file, seen)
        plain_ND = torch.stack([seen[row].plain_D for row in chosen])
        moved_ND = torch.stack([seen[row].moved_D for row in chosen])
        labels_N = torch.tensor([labels[row] for row in chosen])
        return Rows(plain_ND, labels_N), Rows(moved_ND, labels_N)

    def frozen(self, task: FitTask) -> Rows:
        """Training rows at theta0, more than are seen under sums."""
        raws, labels = labelled_rows(self._materials.blobs, task.train)
        chosen = sample_rows(range(len(raws)), FROZEN_ROWS, 0)
        file = self._file("frozen", task.vector.task, task.train)
        features_ND = kept(file, lambda: self._at_theta0([raws[row] for row in chosen]))
        return Rows(features_ND, torch.tensor([labels[row] for row in chosen]))

    def generic(self, shard: BlobRef) -> tuple[Tensor, Tensor]:
        """Samples of no task at theta0, to learn from and to judge by."""
        blobs = self._materials.blobs
        inputs = {"learned": training_inputs(blobs, shard), "judged": probe_inputs(blobs, shard)}
        learned_ND, judged_ND = (
            kept(self._file(part, GENERIC, shard), lambda raws=raws: self._at_theta0(raws))
            for part, raws in inputs.items()
        )
        return learned_ND, judged_ND

    def _at_theta0(self, raws: Sequence[Raw]) -> Tensor:
        return self._materials.features(self._materials.prepared(raws))

    def _file(self, kind: str, task: str, part: BlobRef) -> Path:
        whose = {"base": self._work.base.digest, "owner": self._work.owner, "task": task}
        return self._folder / identity(kind, {**whose, "data": part.digest})


def _at_theta0(pairs: Mapping[str, Pair]) -> dict[str, Rows]:
    return {task: plain for task, (plain, _) in pairs.items()}


def _accuracies(heads: Mapping[str, Head], rows: Mapping[str, Rows]) -> dict[str, float]:
    """With the task known."""
    return {
        t: metrics.accuracy(heads[t].logits(r.features_ND), r.labels_N) for t, r in rows.items()
    }


def _unknown(heads: Mapping[str, Head], rows: Mapping[str, Rows]) -> float:
    features = {task: one.features_ND for task, one in rows.items()}
    labels = {task: one.labels_N for task, one in rows.items()}
    return metrics.absolute(metrics.class_incremental(features, labels, heads))
