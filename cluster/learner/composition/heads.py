"""Heads fitted again under one model: a merge, or coefficients that were learned for each block.

Heads that were fitted under sums of whole vectors do not know such a model. Labelled rows of the
tasks that it adds are seen as it moves them, f + J tau; as for sums, heads are drawn half towards
those of the training and half towards what more rows teach at theta0 (`tacl.heads.fitting`).
"""

from __future__ import annotations

import time

import torch

from cluster.domain.base import BlobRef
from cluster.domain.compositions import Fitted
from cluster.learner.artifacts import BATCH
from cluster.learner.composition.inputs import Ingredients
from cluster.learner.heads import AtTheta0, HeadRows, Pair, learned, rows_of_each
from cluster.learner.progress import Tell
from cluster.storage.home import Home
from cluster.storage.samples import labelled_rows
from tacl.data.splits import sample_rows
from tacl.evaluation.tangents import cached_tangents
from tacl.heads.fitting import LabelledFeatures
from tacl.vectors.params import Params

MOST_ROWS = 300  # of one part of one task: a person waits, and most is learned at theta0


def fitted(found: Ingredients, tau: Params, home: Home, tell: Tell) -> Fitted | None:
    """None where rows of a task that it adds may not teach."""
    started = time.monotonic()
    taught = {task.name: task.train for task in found.work.tasks if task.train is not None}
    if not taught:
        return None
    at_theta0 = AtTheta0(found.materials, home, owner="")
    rows = HeadRows({}, {}, {}, at_theta0.generic(home.founded().generic))
    for done, task in enumerate(found.work.tasks, 1):
        if train := taught.get(task.name):
            rows.train[task.name] = _moved(found, tau, train)
            rows.validation[task.name] = _moved(found, tau, task.validation)
            rows.frozen[task.name] = at_theta0.rows(task.name, train, 2 * rows_of_each(len(taught)))
        tell(done, len(found.work.tasks), None)
    latest = {term.vector.task: term.vector for term in found.work.terms}
    return learned(found.materials, [latest[task] for task in taught], rows, started)


def _moved(found: Ingredients, tau: Params, part: BlobRef) -> Pair:
    raws, labels = labelled_rows(found.materials.blobs, part)
    chosen = sample_rows(range(len(raws)), MOST_ROWS, 0)
    items = found.materials.prepared([raws[row] for row in chosen])
    labels_N = torch.tensor([labels[row] for row in chosen])
    cached = cached_tangents(found.module, found.backbone, items, {"model": tau}, BATCH)
    plain_NE, moved_ND = found.materials.plain(items), cached.linearized({"model": 1.0})
    return LabelledFeatures(plain_NE, labels_N), LabelledFeatures(moved_ND, labels_N)
