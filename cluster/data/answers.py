"""A model's answers as an Arrow table: the likeliest task and class of each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from cluster.domain.base import identity
from cluster.domain.compositions import Composition
from cluster.domain.methods import head_blobs
from cluster.domain.operations import Belonging, Candidate, Ranked, best

ARROW = "application/vnd.apache.arrow.stream"
ROWS = 1024  # of a request
Table = Any  # pyarrow.Table, which has no types
ANSWERS = pa.schema(
    [
        pa.field("task", pa.string(), nullable=False),
        pa.field("label", pa.string(), nullable=False),
        pa.field("probability", pa.float64(), nullable=False),
        pa.field("belongs", pa.float64()),
        pa.field("none", pa.bool_()),
    ]
)


def schema_metadata(model: Composition) -> dict[str, str]:
    """Digests of the model and of the heads it answers with, which a fit changes without changing
    the former."""
    parts = {"heads": head_blobs(model), "novelty": model.novelty}
    return {"digest": model.digest, "heads": identity("answering heads", parts)}


def likeliest(ranked: Sequence[Ranked], task: str | None) -> list[Candidate]:
    """The likeliest class of each answer; within `task`, if one is named."""
    if task is None:
        return list(best(ranked, None))
    return [Candidate.first(task, one[task]) for one in ranked]


def answer_table(
    first: Sequence[Candidate], belonging: Sequence[Belonging], model: Mapping[str, str]
) -> Table:
    """A table with a row for each answer. `model`: its metadata, from `schema_metadata`."""
    nothing = [None] * len(first)
    columns = [
        [one.task for one in first],
        [one.label for one in first],
        [one.probability for one in first],
        [one.probability for one in belonging] or nothing,
        [one.none for one in belonging] or nothing,
    ]
    arrays = [pa.array(column, of.type) for column, of in zip(columns, ANSWERS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=ANSWERS.with_metadata(dict(model)))
