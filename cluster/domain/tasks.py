"""A task from its submission to its vector: options, shards of the sample store, versions."""

from __future__ import annotations

import math
import operator
from typing import Annotated, Literal

from pydantic import Field

from cluster.domain.base import BlobRef, Message, Modality, Positive, Regime

GENERIC = "generic"  # the reference shard every store holds from its first day; never trained


ANY = -1  # whatever version an alias has now


CHAMPION = "champion"  # the alias a task's published versions move


class Options(Message):
    """What a submitter may choose for a run; None means the rule of `tacl.training.config`
    decides."""

    penalty: Literal["cyclical", "mixed", "strict", "none"] = "cyclical"
    norm: Literal["l2", "l2_squared"] | None = None
    strength: Annotated[float, Field(ge=0, lt=math.inf)] | None = None  # lambda, dimensionless
    # Left out where it is not set: runs are found under a hash of their options.
    grow_strength: bool = Field(default=False, exclude_if=operator.not_)
    steps: Positive | None = None
    learning_rate: Annotated[float, Field(gt=0, lt=math.inf)] | None = None
    batch: Positive | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    keep_as: Literal["float32", "bfloat16", "int8", "int4"] = "float32"  # the vector's file
    engine: Literal["deepspeed", "plain"] = "deepspeed"
    zero_stage: Literal[0, 1, 2] | None = None  # None: 0 on one worker, 2 on several
    workers: Positive = 1
    cpus_per_worker: Positive = 1
    gpus_per_worker: Annotated[int, Field(ge=0)] = 0
    refresh: Literal["never", "on_arrival"] = "on_arrival"
    share: Literal["samples", "statistics", "none"] = "samples"  # what other tasks' runs see
    seed: int = 0


class Submission(Message):
    """A checked task, as `ingest` made it: its data already lie in the blob store."""

    request_id: str
    name: str
    owner: str
    private: bool = False  # its samples enter only its owner's cycles, and only its owner sees it
    modality: Modality
    classes: tuple[str, ...]
    templates: tuple[str, ...] = ()
    train: BlobRef
    validation: BlobRef
    test: BlobRef
    shard: BlobRef
    options: Options = Options()
    vector_blob: str | None = None  # of a vector made elsewhere: it is measured, nothing is trained


class Submitted(Message):
    """The answer to a submission (the same for the same request id)."""

    task: str
    run_id: str
    state: str


class Shard(Message):
    """One version of one task's unlabelled samples, as a learner is told of it.

    A later version of a task's shard takes the place of the earlier one and holds its rows too.
    """

    task: str  # a task's name, or GENERIC
    ordinal: int  # order of arrival of the task; GENERIC is 0
    blob: BlobRef
    version: int = 1
    statistics: str | None = None  # blob digest of what others see instead of the samples
    head: str = ""  # blob digest of the task's head, once the task has a vector


class Arrival(Message):
    """A run knows this shard from `step` on, and before `left`: when its task was removed."""

    step: int
    shard: Shard
    left: int | None = None


class VectorRef(Message):
    """One published version of one task's vector."""

    task: str
    version: int  # 1, 2, ...
    digest: str  # content digest of the vector
    blob: str  # blob digest of its safetensors file
    head_blob: str  # blob digest of the task's head (safetensors)
    run_id: str
    parent: int | None = None  # the version it was refreshed from
    regime: Regime = "linearized"
    accepted_metrics: dict[str, float] = {}


class Pair(Message):
    """What one vector does on one task's probe: tau_jp, and behind the task's head the change of
    the logits (`tacl.evaluation.interference`), each a mean with its error."""

    task: str  # whose vector
    version: int
    vector_digest: str
    on: str  # whose probe
    shard_digest: str
    tau_jp: float  # mean over the probe of |J tau|_2, raw
    standard_error: float
    rows: int
    head: str = ""  # blob digest of the head; none where the task had no vector yet
    logits: float | None = None  # mean over the probe of |change of the logits|
    logits_error: float | None = None
