"""Fits the heads of all champions again, together, on labelled rows under sums of their vectors;
with many tasks, only those of new tasks and of tasks near them (`tacl.heads.block`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from cluster.domain.base import BlobRef, identity
from cluster.domain.compositions import Fitted, FittedHead
from cluster.domain.outcomes import GivesWay
from cluster.domain.tasks import VectorRef
from cluster.domain.work import FitTask, FitWork
from cluster.learner.artifacts import Materials, given_device
from cluster.learner.feature_cache import (
    CachedRow,
    Writer,
    due,
    kept,
    read,
    write,
    written_by,
)
from cluster.learner.progress import ProgressCallback
from cluster.storage.blobs import Blobs
from cluster.storage.home import Home
from cluster.storage.listed import listed_tasks
from cluster.storage.samples import Raw, labelled_rows, probe_inputs, training_inputs
from tacl.data.nonsense import JUDGED, LEARNED, with_nonsense
from tacl.data.splits import sample_rows
from tacl.evaluation import metrics
from tacl.heads.block import WHOLE, near_count, rows_beside, taken_for
from tacl.heads.fitting import KeptHeads, LabelledFeatures, answering_heads, frozen_heads, views
from tacl.heads.head import Head
from tacl.heads.novelty import GENERIC
from tacl.heads.probe import nothing
from tacl.models.linearized import LinearizedEncoder
from tacl.models.sums import Sums
from tacl.vectors.params import Params

MOST_ROWS = 3000  # of one part of one task, under sums: a dual pass each
FROZEN_ROWS = 4000  # of a part of a task's rows at theta0: a forward pass each, only once
TOGETHER = 64_000  # of one part of all tasks, to bound the memory of a fit
LEAST_ROWS = 64  # of one part of one task, however many tasks there are
AGAIN = 1000  # rows of all tasks together that one fit measures again

Pair = tuple[LabelledFeatures, LabelledFeatures]  # at theta0, and under sums


def fit(work: FitWork, home: Home, tell: ProgressCallback) -> Fitted:
    """Heads of every task of the work, in its order, with metrics on validation rows. Gives way
    between two tasks and between two regressions: rows already passed are cached, and the run
    starts again with them."""
    started = time.monotonic()
    if not (tasks := listed_tasks(home.blobs(), work.listed)):  # ordinary vectors do not add up
        return Fitted(heads=(), metrics={})
    materials = Materials(home, work.base, given_device(work.gpus))
    at_theta0 = AtTheta0(materials, home, work.owner)
    stay = staying(tasks, materials, at_theta0)
    beside = rows_beside(stay, [task.vector.task for task in tasks if task.fitted is None])
    taking_part = [t for t in tasks if t.vector.task not in stay or t.vector.task in beside]
    names = [task.vector.task for task in tasks]
    # As trainings pass: in the home's precision on a CPU, in float32 on a GPU.
    module = materials.linearized("float32" if work.gpus else home.founded().precision)
    seeing = RowsUnderSums(materials, module, taking_part, at_theta0, work.run_id, names)
    rows = HeadRows({}, {}, {}, {}, at_theta0.generic(home.founded().generic))
    for done, task in enumerate(tasks, 1):
        name, most = task.vector.task, rows_of_each(len(tasks))
        moved = min(beside.get(name, 0), seeing.most) if name in stay else seeing.most
        if moved:  # first: these passes also give rows at theta0
            rows.train[name] = seeing.rows(task, task.train, moved)
        rows.frozen[name] = at_theta0.rows(name, task.train, 2 * most)
        if moved:
            rows.validation[name] = seeing.rows(task, task.validation, moved)
        rows.plain[name] = at_theta0.rows(name, task.validation, most)
        give_way(tell, done, len(tasks))
    del seeing, at_theta0  # frees the sums of vectors, and the originals that were read last
    vectors, between = [t.vector for t in tasks], partial(give_way, tell, len(tasks), len(tasks))
    return learned(materials, vectors, rows, started, stay, beside, between)


def give_way(tell: ProgressCallback, done: int, of: int) -> None:
    """Reports progress; raises GivesWay if somebody waits for the run's place."""
    if tell(done, of, None):
        raise GivesWay


def staying(
    tasks: Sequence[FitTask], materials: Materials, at_theta0: AtTheta0
) -> dict[str, FittedHead]:
    """By task, the heads that are not fitted again; none if there are few tasks."""
    found = {task.vector.task: task.fitted for task in tasks if task.fitted is not None}
    new = [task for task in tasks if task.fitted is None]
    if len(tasks) <= WHOLE or not new:
        return {}
    frozen = {name: materials.head(head.frozen) for name, head in found.items()}
    seen = [at_theta0.rows(t.vector.task, t.validation, LEAST_ROWS).features_ND for t in new]
    if any(head.weight_CD.shape[1] != seen[0].shape[1] for head in frozen.values()):
        return {}  # heads of an earlier version of TACL, which read fewer blocks
    near = taken_for(torch.cat(seen), frozen, near_count(len(new))) if frozen else []
    return {name: head for name, head in found.items() if name not in near}


@dataclass(frozen=True)
class HeadRows:
    """Labelled rows by task. `train` and `validation`: at theta0 and as the model moves them, of
    the tasks that take part; `frozen` and `plain`: more rows of all tasks at theta0, for learning
    and for judging. `generic`: samples of no task, for learning and for judging."""

    train: dict[str, Pair]
    validation: dict[str, Pair]
    frozen: dict[str, LabelledFeatures]
    plain: dict[str, LabelledFeatures]
    generic: tuple[Tensor, Tensor]


def learned(
    materials: Materials,
    vectors: Sequence[VectorRef],
    rows: HeadRows,
    started: float,
    stay: Mapping[str, FittedHead] | None = None,
    beside: Mapping[str, int] | None = None,
    between: Callable[[], None] = nothing,
) -> Fitted:
    """Heads of the tasks of these vectors, with weights decaying towards those of the training;
    some `stay` as they are, and rows of the tasks `beside` take part. `between`: see
    `chosen_probe`."""
    stay, judged = stay or {}, views(rows.validation)
    new = {v.task: materials.head(v.head_blob) for v in vectors if v.task not in stay}
    kept = KeptHeads(
        {name: materials.head(one.head) for name, one in stay.items()},
        {name: materials.head(one.frozen) for name, one in stay.items()},
        beside or {},
    )
    frozen, novelty = frozen_heads(new, rows.frozen, rows.plain, rows.generic, kept, between)
    fitted = answering_heads(new, frozen, rows.train, rows.validation, kept, between)
    known = _accuracies(fitted, judged)
    frozen_known = _accuracies(frozen, rows.plain)
    heads = tuple(
        stay.get(name)
        or FittedHead(
            task=name,
            vector=vector.digest,
            head=materials.put_tensors(fitted[name].to_params()),
            frozen=materials.put_tensors(frozen[name].to_params()),
            accuracy=known[name],
            frozen_accuracy=frozen_known[name],
        )
        for vector in vectors
        for name in [vector.task]
    )
    figures = {
        "known": metrics.absolute({one.task: one.accuracy for one in heads}),
        "unknown": _unknown({**kept.answering, **fitted}, judged),
        "frozen_known": metrics.absolute({one.task: one.frozen_accuracy for one in heads}),
        "frozen_unknown": _unknown({**kept.frozen, **frozen}, rows.plain),
        "rows": sum(len(pair[0].labels_N) for pair in rows.train.values()),
        "seconds": time.monotonic() - started,
    }
    return Fitted(heads=heads, novelty=materials.put_tensors(novelty.to_params()), metrics=figures)


class AtTheta0:
    """Rows at theta0, cached in files. `owner`: the user whose private tasks may be among them."""

    def __init__(self, materials: Materials, home: Home, owner: str) -> None:
        self._materials, self._owner = materials, owner
        self._folder = home.path / "cache" / "heads"
        self._last: tuple[BlobRef, tuple[list[Raw], list[int]]] | None = None

    def labelled(self, part: BlobRef) -> tuple[list[Raw], list[int]]:
        """Rows of a part. Keeps only the last part: callers request it several times in a row, and
        pictures are large."""
        if self._last is None or self._last[0] != part:
            self._last = part, labelled_rows(self._materials.blobs, part)
        return self._last[1]

    def rows(
        self, task: str, part: BlobRef, most: int, passed: Mapping[int, Tensor] | None = None
    ) -> LabelledFeatures:
        """At most `most` rows of a part of a task's rows, and at most FROZEN_ROWS; no class has two
        before each has one. `passed`: rows that a dual pass has just measured, by their number."""
        raws, labels = self.labelled(part)
        stored = sample_rows(range(len(raws)), FROZEN_ROWS, 0, labels)

        def measured() -> Tensor:
            found = dict(passed or {})
            if rest := [row for row in stored if row not in found]:
                plain_NE = self._plain([raws[row] for row in rest])
                found |= dict(zip(rest, plain_NE, strict=True))
            return torch.stack([found[row] for row in stored])

        plain_NE = kept(self.file("plain of each class", task, part), measured)
        chosen = set(sample_rows(range(len(raws)), most, 0, labels))  # some of the stored
        places = [place for place, row in enumerate(stored) if row in chosen]
        labels_N = torch.tensor([labels[stored[place]] for place in places])
        return LabelledFeatures(plain_NE[places], labels_N)

    def generic(self, shard: BlobRef) -> tuple[Tensor, Tensor]:
        """Inputs of no task, for learning and for judging: generic samples and nonsense."""

        def plain(part: str, read: Callable[[Blobs, BlobRef], list[Raw]], count: int) -> Tensor:
            def measured() -> Tensor:
                return self._plain(with_nonsense(read(self._materials.blobs, shard), count))

            return kept(self.file(f"plain {part}, {count} of nonsense", GENERIC, shard), measured)

        return plain("learned", training_inputs, LEARNED), plain("judged", probe_inputs, JUDGED)

    def file(self, kind: str, task: str, part: BlobRef) -> Path:
        base = self._materials.backbone.digest
        whose = {"base": base, "owner": self._owner, "task": task}
        return self._folder / identity(kind, {**whose, "data": part.digest})

    def _plain(self, raws: Sequence[Raw]) -> Tensor:
        return self._materials.plain(self._materials.prepared(raws))


def rows_of_each(tasks: int) -> int:
    """How many rows of one part of each task are measured under sums, given the number of tasks."""
    return max(LEAST_ROWS, min(MOST_ROWS, TOGETHER // tasks))


def again_of(task: str, tasks: int, run_id: str) -> int:
    """How many rows of a part of a task a fit measures again; with more tasks than AGAIN rows, one
    row of some tasks, drawn by the run's id."""
    each, rest = divmod(AGAIN, tasks)
    drawn = int(identity("again", {"run": run_id, "task": task}), 16) % tasks
    return each + (drawn < rest)


class RowsUnderSums:
    """Rows of the tasks that take part in a fit, under sums of their vectors; earlier measurements
    are cached. `tasks`: all tasks of the fit."""

    def __init__(
        self,
        materials: Materials,
        module: LinearizedEncoder,
        taking_part: Sequence[FitTask],
        at_theta0: AtTheta0,
        run_id: str,
        tasks: Collection[str],
    ) -> None:
        self._materials, self._at_theta0, self._run_id = materials, at_theta0, run_id
        self._count, self._tasks = len(taking_part), frozenset(tasks)
        self.most = rows_of_each(len(taking_part))
        refs = {task.vector.task: task.vector for task in taking_part}

        def tau_of(name: str) -> Params:
            """Reads the vector from its file at each call: memory cannot hold all."""
            return materials.vector(refs[name]).to_params()

        self._sums = Sums(module, materials.backbone, [*refs], tau_of)

    def rows(self, task: FitTask, part: BlobRef, most: int) -> Pair:
        name, (raws, labels) = task.vector.task, self._at_theta0.labelled(part)
        file = self._at_theta0.file("moved", name, part)
        before = written_by(file)
        # Under sums that held the vector of a task that has left: measured again, all of them.
        seen = read(file) if before.tasks <= self._tasks else {}
        chosen = sample_rows(range(len(raws)), most, 0, labels)
        turn = 1 + max((one.turn for one in seen.values()), default=0)
        # A resumed run has already measured its rows again.
        again = 0 if before.run_id == self._run_id else again_of(name, self._count, self._run_id)
        passed: dict[int, Tensor] = {}
        if wanted := due(seen, chosen, again):
            items = self._materials.prepared([raws[row] for row in wanted])
            found = self._sums.rows(name, items, turn - 1)
            passed = dict(zip(wanted, found.plain_NE, strict=True))
            pairs = zip(wanted, found.moved_ND, strict=True)
            seen |= {row: CachedRow(turn, moved_D) for row, moved_D in pairs}
            summed = (before.tasks & self._tasks) | self._sums.tasks
            write(file, seen, Writer(self._run_id, summed))
        moved_ND = torch.stack([seen[row].moved_D for row in chosen])
        plain = self._at_theta0.rows(name, part, most, passed)
        return plain, LabelledFeatures(moved_ND, torch.tensor([labels[row] for row in chosen]))


def _accuracies(
    heads: Mapping[str, Head], rows: Mapping[str, LabelledFeatures]
) -> dict[str, float]:
    """Accuracy of each task, with the task known."""
    return {
        task: metrics.accuracy(head.logits(rows[task].features_ND), rows[task].labels_N)
        for task, head in heads.items()
    }


def _unknown(heads: Mapping[str, Head], rows: Mapping[str, LabelledFeatures]) -> float:
    features = {task: one.features_ND for task, one in rows.items()}
    labels = {task: one.labels_N for task, one in rows.items()}
    return metrics.absolute(metrics.class_incremental(features, labels, heads))
