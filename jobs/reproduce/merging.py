"""Merges of vectors that are more than a sum, as cells: what they give is a direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from jobs.reproduce.bench import Bench
from jobs.reproduce.cells import Made
from jobs.reproduce.directions import Kept
from jobs.reproduce.models import Model, Vectors, apart
from tacl.params import Params
from tacl.vectors import TaskVector

Merge = Callable[[Sequence[TaskVector], Sequence[float]], Params]


def merged(bench: Bench, first: Vectors, merge: Merge) -> Model:
    """By TIES, TSV-M, Iso-C ... of the vectors, all with coefficient 1."""
    vectors = list(first.values())

    def make() -> Made:
        kept = [vector.task_vector(bench.backbone.digest) for vector in vectors]
        return {}, merge(kept, [1.0] * len(kept))

    decides = bench.decided_by(merge=merge.__name__, vectors=[vector.key for vector in vectors])
    cell = bench.cells.get("merge", decides, make, f"{merge.__name__}, seed {bench.seed}")
    direction = Kept(cell, vectors[0].regime)
    return replace(apart(bench, first), direction=direction, merging=cell.cost)
