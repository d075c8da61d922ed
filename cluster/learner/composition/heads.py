"""Heads fitted again under one model: a merge, or coefficients that were learned for each block.

Heads that were fitted under sums of whole vectors do not fit such a model. These are fitted on
labelled rows of the tasks that it adds, at f + J tau; as for sums, weights decay half towards the
heads of the training and half towards those from more rows at theta0 (`tacl.heads.fitting`).
"""

from __future__ import annotations

import time

from cluster.domain.base import BlobRef
from cluster.domain.compositions import Fitted
from cluster.learner.composition.inputs import Ingredients
from cluster.learner.heads import AtTheta0, HeadRows, Pair, learned, rows_of_each
from cluster.learner.progress import ProgressCallback
from cluster.storage.home import Home
from tacl.heads.fitting import LabelledFeatures
from tacl.vectors.params import Params

MOST_ROWS = 300  # of one part of one task: a person is waiting, and most is learned at theta0


def fitted(found: Ingredients, tau: Params, home: Home, tell: ProgressCallback) -> Fitted | None:
    """Heads fitted under the model; None if the work has no training rows for that."""
    started = time.monotonic()
    taught = {task.name: task.train for task in found.work.tasks if task.train is not None}
    if not taught:
        return None
    at_theta0 = AtTheta0(found.materials, home, owner="")
    rows = HeadRows({}, {}, {}, {}, at_theta0.generic(home.founded().generic))
    for done, task in enumerate(found.work.tasks, 1):
        if train := taught.get(task.name):
            rows.train[task.name] = _moved(found, tau, train, each_class=True)
            rows.validation[task.name] = _moved(found, tau, task.validation)
            rows.plain[task.name] = rows.validation[task.name][0]
            rows.frozen[task.name] = at_theta0.rows(task.name, train, 2 * rows_of_each(len(taught)))
        tell(done, len(found.work.tasks), None)
    latest = {term.vector.task: term.vector for term in found.work.terms}
    return learned(found.materials, [latest[task] for task in taught], rows, started)


def _moved(found: Ingredients, tau: Params, part: BlobRef, each_class: bool = False) -> Pair:
    """Rows at theta0, and moved by tau. `each_class` is for rows to learn from: a column without a
    row of its own would only be pushed down."""
    materials = found.materials
    data = materials.labelled(part, MOST_ROWS, each_class)
    plain_NE, moved_ND = materials.moved(data.items, tau)
    return LabelledFeatures(plain_NE, data.labels), LabelledFeatures(moved_ND, data.labels)
