"""Merges of vectors that are more than a sum, as cells: what they give is a direction."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from jobs.experiments.cache import Made
from jobs.experiments.context import Bench
from jobs.experiments.directions import Kept, Vector, task_vectors
from jobs.experiments.models import Model, Vectors, apart, summed
from tacl.compose.refreshed import refresh_composition
from tacl.training.loop import Store
from tacl.vectors.params import Params
from tacl.vectors.vector import TaskVector

Merge = Callable[[Sequence[TaskVector], Sequence[float]], Params]


def merged(bench: Bench, first: Vectors, merge: Merge) -> Model:
    """By TIES, TSV-M, Iso-C ... of the vectors, all with coefficient 1."""
    vectors, name = list(first.values()), merge.__name__
    kept = merge_of(
        bench, name, vectors, lambda: merge(task_vectors(bench, vectors), [1.0] * len(vectors))
    )
    return replace(apart(bench, first), direction=kept, merging=kept.cell.cost)


def merge_of(
    bench: Bench, name: str, vectors: Sequence[Vector], merge: Callable[[], Params], what: str = ""
) -> Kept:
    keys = [vector.key for vector in vectors]
    cell = bench.cell("merge", lambda: ({}, merge()), what or name, merge=name, vectors=keys)
    return Kept(cell, vectors[0].regime)


def one_delta(bench: Bench, first: Vectors) -> Model:
    """The sum, refreshed as a whole by one delta, in as many steps as all its vectors would take.

    Where that is not accepted it is the sum itself.
    """
    config = replace(
        bench.suite.refresh, seed=bench.seed, steps=len(first) * bench.suite.refresh.steps
    )
    plain = summed(bench, first, first)

    def make() -> Made:
        taus = {task: vector.tau() for task, vector in first.items()}
        ones = dict.fromkeys(taus, 1.0)
        stores = [Store(task, bench.store(task).items, math.nan) for task in taus]
        module = bench.base.linearized()
        found = refresh_composition(module, bench.backbone, taus, ones, stores, config)
        facts = {"accepted": found.accepted, "reason": found.reason}
        return facts | {"before": found.before, "after": found.after}, found.tau

    cell = bench.cell(
        "delta",
        make,
        "of the sum",
        vectors=[vector.key for vector in first.values()],
        config=config.as_dict(),
        stores=[bench.rows(task).digest("shard") for task in first],
    )
    accepted = cell.facts["accepted"]
    direction = Kept(cell, "linearized") if accepted else plain.direction
    return replace(plain, direction=direction, merging=cell.cost, facts={"accepted": accepted})
