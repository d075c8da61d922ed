"""Heads of all champions fitted again, together, on labelled rows under sums of their vectors."""

from __future__ import annotations

import time
from collections.abc import Mapping

from cluster.domain.base import BlobRef
from cluster.domain.work import FitTask, Fitted, FittedHead, FitWork
from cluster.learner.artifacts import Materials
from cluster.storage.home import Home
from tacl.data.splits import sample_rows
from tacl.evaluation import metrics
from tacl.heads.fitting import Rows, fitted_heads
from tacl.heads.head import Head
from tacl.models.sums import Sums

MOST_ROWS = 2000  # of one task; of all together at most BUDGET, so that many tasks cost no more
BUDGET = 16_000

Pair = tuple[Rows, Rows]  # at theta0, and under sums


def fit(work: FitWork, home: Home) -> Fitted:
    """Heads of every task of the work, in its order, and what validation rows say of them."""
    started = time.monotonic()
    if not work.tasks:  # ordinary vectors alone: they do not add up with anything
        return Fitted(heads=(), metrics={})
    materials = Materials(home, work.base)
    taus = {task.vector.task: materials.vector(task.vector).to_params() for task in work.tasks}
    sums = Sums(materials.linearized(), materials.backbone, taus)
    most = max(1, min(MOST_ROWS, BUDGET // len(work.tasks)))

    def seen(task: FitTask, part: BlobRef) -> Pair:
        """Rows are chosen by the vector's digest where there are more than may be seen."""
        whole = materials.labelled(part)
        chosen = sample_rows(range(len(whole)), most, int(task.vector.digest[:8], 16))
        return sums.rows(task.vector.task, whole.items, whole.labels, chosen)

    train = {task.vector.task: seen(task, task.train) for task in work.tasks}
    validation = {task.vector.task: seen(task, task.validation) for task in work.tasks}
    trained = {task.vector.task: materials.head(task.vector.head_blob) for task in work.tasks}
    frozen, fitted = (
        fitted_heads(trained, _of(train, place), _of(validation, place)) for place in (0, 1)
    )
    heads = tuple(
        FittedHead(
            task=task.vector.task,
            vector=task.vector.digest,
            head=materials.put_head(fitted[task.vector.task]),
            frozen=materials.put_head(frozen[task.vector.task]),
        )
        for task in work.tasks
    )
    figures = {
        **_judged(frozen, _of(validation, 0), "frozen_"),
        **_judged(fitted, _of(validation, 1)),
        "rows": sum(len(pair[0].labels_N) for pair in train.values()),
        "seconds": time.monotonic() - started,
    }
    return Fitted(heads=heads, metrics=figures)


def _of(pairs: Mapping[str, Pair], place: int) -> dict[str, Rows]:
    return {task: pair[place] for task, pair in pairs.items()}


def _judged(heads: Mapping[str, Head], rows: Mapping[str, Rows], of: str = "") -> dict[str, float]:
    """Accuracy with the task known and unknown."""
    known = {
        t: metrics.accuracy(heads[t].logits(r.features_ND), r.labels_N) for t, r in rows.items()
    }
    features = {task: one.features_ND for task, one in rows.items()}
    labels = {task: one.labels_N for task, one in rows.items()}
    unknown = metrics.class_incremental(features, labels, heads)
    return {f"{of}known": metrics.absolute(known), f"{of}unknown": metrics.absolute(unknown)}
