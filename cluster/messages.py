"""What travels between client, coordinator and learners: plain frozen data, by value or by digest.

Nothing here imports torch, ray or SQL: the control plane and its tests start in milliseconds.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Modality = Literal["image", "text"]
Regime = Literal["linearized", "ordinary"]
Method = Literal["sum", "grid", "atlas", "adamerging", "ties", "tsv", "iso"]
Role = Literal["user", "submitter", "admin"]
ROLES: tuple[Role, ...] = ("user", "submitter", "admin")  # each may do what those before it may
Positive = Annotated[int, Field(ge=1)]
GENERIC = "generic"  # the reference shard every store holds from its first day; never trained
ANY = -1  # whatever version an alias has now
CHAMPION = "champion"  # the alias a task's published versions move


def identity(kind: str, parts: Mapping[str, object]) -> str:
    """sha256 hex of a JSON-able value: the name of whatever is decided by exactly these parts."""
    text = json.dumps([kind, parts], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


class Message(BaseModel):
    """Immutable, strict about unknown fields; infinities and NaN survive as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class BlobRef(Message):
    """An immutable Parquet file in the blob store.

    Columns of a data blob: `input` (binary: an image's original bytes, or string: a text) and
    `label` (int64). Columns of a shard blob: `input` and `probe` (bool): the 64 probe rows that
    no step ever trains on.
    """

    digest: str  # sha256 of the bytes
    rows: int


class Options(Message):
    """What a submitter may choose for a run; None means the rule of `tacl.config` decides."""

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
    the logits (`tacl.interference`), each a mean with its error."""

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


class Base(Message):
    """The one pre-trained encoder of a home."""

    spec: str
    digest: str
    modality: Modality
    head_kind: Literal["text", "prototype"]


class TrainWork(Message):
    """Train one task: digests in, a `Trained` out. `run_id` names the checkpoints too."""

    kind: Literal["train"] = "train"
    run_id: str
    base: Base
    submission: Submission
    attempt: int


class RefreshWork(Message):
    """Label-free refresh of `vector` against the shards of all other tasks (method.md 8)."""

    kind: Literal["refresh"] = "refresh"
    run_id: str
    base: Base
    vector: VectorRef
    first: VectorRef | None = None  # what `vector` was refreshed from at first, if it was
    own: Shard
    others: tuple[Shard, ...]
    options: Options
    attempt: int


class MeasureWork(Message):
    """Measure tau_jp for every (vector, shard) pair named."""

    kind: Literal["measure"] = "measure"
    run_id: str
    base: Base
    pairs: tuple[tuple[VectorRef, Shard], ...]
    attempt: int


class RecipeTerm(Message):
    """One vector of a composition, pinned.

    `by_block`: coefficients that were learned, in the place of the one; of other blocks 0.
    """

    coefficient: float
    vector: VectorRef
    by_block: dict[str, float] | None = None


class Merged(Message):
    """One tau in the place of a sum, as TIES, TSV-M and Iso-C make it: a vector's file."""

    digest: str  # content digest of the vector
    blob: str


class Target(Message):
    """A task without a vector that a composition was fitted to, and its head."""

    name: str
    classes: tuple[str, ...]
    head_blob: str


class Composition(Message):
    """A user's model: a recipe of pinned vectors. Its digest names it.

    With `merged`, the terms say what that was made of, signs and coefficients as they went in.
    """

    digest: str
    user: str
    method: Method = "sum"
    terms: tuple[RecipeTerm, ...]
    merged: Merged | None = None
    target: Target | None = None


class Fit(Message):
    """Few labelled rows of a task that has no vector; what is left of them judges."""

    classes: tuple[str, ...]
    shots: BlobRef
    held_out: BlobRef | None = None


class Adapt(Message):
    """Unlabelled inputs (a shard blob): of a new task with these classes; without classes, of any
    task of the recipe."""

    inputs: BlobRef
    classes: tuple[str, ...] = ()


class Making(Message):
    """How a composition is made that is more than a sum (`cluster.methods`)."""

    method: Method
    select: str | None = None  # blockwise:B | whole:B | random:B
    fit: Fit | None = None
    adapt: Adapt | None = None


class TaskRows(Message):
    """What making a composition needs of one task of its recipe."""

    name: str
    head_blob: str
    validation: BlobRef


class ComposeWork(Message):
    """Make a composition of `terms`, coefficients as they were written, for a user."""

    kind: Literal["compose"] = "compose"
    run_id: str
    base: Base
    user: str
    terms: tuple[RecipeTerm, ...]
    making: Making
    tasks: tuple[TaskRows, ...]
    probes: tuple[Shard, ...]  # on which tau_jp is measured again
    attempt: int


class TaskData(Message):
    """What evaluation needs of one task."""

    name: str
    classes: tuple[str, ...]
    head_blob: str
    test: BlobRef
    individual: VectorRef  # the vector as first trained


class EvaluateWork(Message):
    """Evaluate a composition on the test split of every task it names.

    `materialized`: also as one ordinary model theta0 + sum c tau, which is what is exported.
    """

    kind: Literal["evaluate"] = "evaluate"
    run_id: str
    base: Base
    composition: Composition
    tasks: tuple[TaskData, ...]
    materialized: bool = False
    attempt: int


Work = TrainWork | RefreshWork | MeasureWork | EvaluateWork | ComposeWork


class Progress(Message):
    """Where a run is after its latest optimizer step."""

    step: int  # optimizer steps done
    steps: int
    loss: float
    penalty: float | None = None


class Trained(Message):
    """A finished training run; the vector and head files are already in the blob store."""

    vector_digest: str
    vector_blob: str
    head_blob: str
    config: dict[str, object]  # the whole algorithm configuration, defaults resolved
    metrics: dict[str, float]  # validation_zero_shot, validation_accuracy, seconds, ...
    curves: dict[str, list[float]]  # step, loss, penalty
    norm: float  # |tau|_2
    pairs: tuple[Pair, ...] = ()  # its row of the tau_jp matrix; version is filled on publish


class Refreshed(Message):
    """A finished refresh: a new vector, or the reason why the old one stays."""

    accepted: bool
    reason: str
    vector_digest: str | None = None
    vector_blob: str | None = None
    config: dict[str, object]
    metrics: dict[str, float]  # own_change, interference_before, interference_after, seconds
    curves: dict[str, list[float]]
    norm: float | None = None
    pairs: tuple[Pair, ...] = ()


class Measured(Message):
    """Every pair that was asked for."""

    pairs: tuple[Pair, ...]


class Evaluated(Message):
    """Accuracies in [0, 1] on the test split (method.md section 4)."""

    per_task: dict[str, dict[str, float]]  # task -> zero_shot, individual, composed, rows ...
    absolute: float
    normalized: float
    class_incremental: float
    seconds: float


class MeasuredAgain(Message):
    """tau_jp of a vector with the coefficients it has in a composition."""

    vector: str  # TASK@vN
    on: str  # whose probe
    tau_jp: float  # mean over the probe of |J Lambda tau|_2, raw
    standard_error: float
    rows: int
    relative: float | None = None  # to what the task's own vector does there
    logits: float | None = None  # the change of the logits, relative to that by the own vector


JudgedOn = Literal[
    "validation rows",
    "the validation rows it learned from",
    "rows held out",
    "the shots themselves",
    "nothing",
]


class Report(Message):
    """What making a composition did. Accuracies in [0, 1]: zero_shot, before (the recipe as a plain
    sum), after, and rows; by task."""

    accuracies: dict[str, dict[str, float]]
    judged_on: JudgedOn
    tau_jp: tuple[MeasuredAgain, ...] = ()
    figures: dict[str, float] = {}  # steps, the loss at both ends, the coefficient of a grid ...
    seconds: float


class Composed(Message):
    """A finished composition: a recipe with its coefficients, or a merged tau in the blob store."""

    terms: tuple[RecipeTerm, ...]
    merged: Merged | None = None
    target: Target | None = None
    report: Report


Result = Trained | Refreshed | Measured | Evaluated | Composed
