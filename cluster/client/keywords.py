"""Keywords of the client's methods, for type checkers, which do not read pydantic models. The
models of `cluster.domain` declare what they mean and which values are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

from tacl.training.config import Norm, Precision, Sampled

if TYPE_CHECKING:
    from cluster.data.ingest import Ingested
    from cluster.data.sources import Data

Rows = Callable[[int, int], None]  # rows checked, rows to check


class ReadingKeywords(TypedDict, total=False):
    """Fields of `cluster.domain.tasks.Reading`."""

    input_column: str | None
    label_column: str | None
    classes: Sequence[str] | None


class TrainingKeywords(ReadingKeywords, total=False):
    """These, and the fields of `cluster.domain.tasks.Options`."""

    penalty: Literal[Sampled, "none"]
    norm: Norm | None
    strength: float | None
    grow_strength: bool
    steps: int | None
    learning_rate: float | None
    batch: int | None
    precision: Precision | None
    keep_as: Literal["float32", "bfloat16", "int8", "int4"]
    engine: Literal["deepspeed", "plain"]
    zero_stage: Literal[0, 1, 2] | None
    workers: int
    cpus_per_worker: int
    gpus_per_worker: float
    refresh: Literal["never", "on_arrival"]
    share: Literal["samples", "statistics", "none"]
    heads: Literal["fitted", "trained"]
    seed: int
    skip_bad: bool


class ImportKeywords(TrainingKeywords, total=False):
    """These, and the keywords of `submit` that also apply to a vector which was made elsewhere."""

    owner: str | None
    private: bool
    templates: Sequence[str]
    request_id: str | None
    progress: Rows | None
    read: Callable[[Ingested], None] | None
    again: bool | Callable[[str], bool]


class CompositionKeywords(ReadingKeywords, total=False):
    """Those of reading, and what a composition learns from: the fields of
    `cluster.domain.compositions.LearnedFrom`, whose rows may also be in memory, and `select` of
    `CompositionMethod`."""

    fit: Data | None
    shots: int | None
    adapt: Data | None
    select: str | None
