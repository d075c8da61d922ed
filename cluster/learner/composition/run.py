"""One composition that is more than a sum: from digests to a recipe with its coefficients, or to a
merged tau, and measurements of the effect.

The same work gives the same composition: rows, batches and augmentations are drawn by seed. The
measured model is the one that will be queried, with the stored, rounded coefficients.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cluster.domain.compositions import Merged, Report
from cluster.domain.work import Composed, ComposeWork
from cluster.learner.composition.assess import accuracies, judges, measured_again
from cluster.learner.composition.fit import coefficients
from cluster.learner.composition.heads import fitted
from cluster.learner.composition.inputs import Ingredients
from cluster.learner.progress import ProgressCallback
from cluster.storage.home import Home
from tacl.compose.arithmetic import composed
from tacl.compose.merges import iso_c, ties, tsv_m
from tacl.vectors.params import Params
from tacl.vectors.vector import TaskVector

MERGE: dict[str, Callable[[Sequence[TaskVector], Sequence[float]], Params]] = {
    "ties": ties,
    "tsv": tsv_m,
    "iso": iso_c,
}


def compose(work: ComposeWork, home: Home, tell: ProgressCallback) -> Composed:
    """Makes the composition and measures it. Raises what the methods of `tacl.compose` raise."""
    started = time.monotonic()
    found, merge = Ingredients(work, home), MERGE.get(work.making.method)
    written = [term.coefficient for term in work.terms]
    before = composed(found.vectors, written)
    terms, figures = work.terms, {}
    if merge is None:
        terms, figures = coefficients(found, tell)
        after = found.tau(terms)
    else:
        after = merge(found.vectors, written)
    heads = fitted(found, after, home, tell)
    judged_on, rows = judges(found)
    report = Report(
        accuracies=accuracies(found, rows, {"before": before, "after": after}),
        judged_on=judged_on,
        tau_jp=measured_again(found, terms),
        figures=figures,
        seconds=time.monotonic() - started,
    )
    target = found.target
    merged = _stored(found, after) if merge else None  # last: see `stored_vector`
    return Composed(terms=terms, merged=merged, target=target, fitted=heads, report=report)


def _stored(found: Ingredients, tau: Params) -> Merged:
    """Stores a merged tau as a vector of its own."""
    method, base = found.making.method, found.work.base.digest
    vector = TaskVector.of_params(method, base, "linearized", tau)
    return Merged(digest=vector.digest, blob=found.materials.put(vector.save))
