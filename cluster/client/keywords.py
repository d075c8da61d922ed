"""Keywords of the client's methods, for whoever writes a program: type checkers read no pydantic
model. What they mean, and what is refused, is declared by the models of `cluster.domain`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

from tacl.training.config import Norm, Precision, Sampled

if TYPE_CHECKING:
    from cluster.data.ingest import Ingested
    from cluster.data.sources import Data

Rows = Callable[[int, int], None]  # rows checked, rows to check


class ReadingKeywords(TypedDict, total=False):
    """Of `cluster.domain.tasks.Reading`."""

    input_column: str | None
    label_column: str | None
    classes: Sequence[str] | None


class TrainingKeywords(ReadingKeywords, total=False):
    """And of `cluster.domain.tasks.Options`."""

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
    """And those of `submit` that a vector which was made elsewhere leaves open."""

    owner: str | None
    private: bool
    templates: Sequence[str]
    request_id: str | None
    progress: Rows | None
    read: Callable[[Ingested], None] | None
    again: bool | Callable[[str], bool]


class CompositionKeywords(ReadingKeywords, total=False):
    """And what a composition learns from: of `cluster.domain.compositions.LearnedFrom`, but that
    rows may be held by the program, and of `CompositionMethod`."""

    fit: Data | None
    shots: int | None
    adapt: Data | None
    select: str | None
