"""A task from its submission to its vector: options, shards of the sample store, versions."""

from __future__ import annotations

import math
import operator
from typing import Literal, Self

from pydantic import Field, model_validator

from cluster.domain.base import AskedGpus, BlobRef, Message, Modality, Regime, Sent
from tacl.training.config import Norm, Precision, Sampled

GENERIC = "generic"  # the shard that is in the sample store from the first day; never trained


ANY = -1  # any version that an alias may have now


CLASSES = 10_000  # of a task, at most: everybody's heads are fitted together
NAME_CHARACTERS = 200  # of a class, of a column


CHAMPION = "champion"  # the alias that published versions of a task move


class Options(Message, Sent):
    """What a submitter may choose for a run; None leaves it to the rule in `tacl.training.config`.
    They are declared here only: flags of the command line and fields over HTTP are generated from
    it."""

    penalty: Literal[Sampled, "none"] = Field(
        default="mixed",
        description="Penalty on the samples of other tasks: one task per step, a row of each "
        "of several tasks, every task in every step, or none.",
    )
    norm: Norm | None = Field(default=None, description="Norm of the penalty.")
    strength: float | None = Field(default=None, ge=0, lt=math.inf, description="Penalty weight λ.")
    # This and skip_bad are left out where not set: runs are found under a hash of their options.
    grow_strength: bool = Field(
        default=False,
        exclude_if=operator.not_,
        description="Let λ grow with the number of other tasks; --strength is λ for eight.",
    )
    steps: int | None = Field(default=None, ge=1, le=1_000_000, description="Optimizer steps.")
    learning_rate: float | None = Field(
        default=None, gt=0, lt=math.inf, description="Peak learning rate."
    )
    batch: int | None = Field(default=None, ge=1, le=65_536, description="Rows per step.")
    precision: Precision | None = Field(
        default=None,
        description="Number format of the passes; by default the one in which the base model was "
        "faster on the machine that made the home, on GPUs float32.",
    )
    keep_as: Literal["float32", "bfloat16", "int8", "int4"] = Field(
        default="float32",
        description="Number format of the stored vector; bfloat16 takes a half, int8 a quarter, "
        "int4 a seventh of the bytes.",
    )
    engine: Literal["deepspeed", "plain"] = Field(
        default="deepspeed", description="Engine of the optimizer."
    )
    zero_stage: Literal[0, 1, 2] | None = Field(
        default=None,
        description="ZeRO stage: what DeepSpeed partitions over the workers; by rule 0 on one "
        "worker, 2 on several.",
    )
    workers: int = Field(default=1, ge=1, le=1024, description="Worker processes of the training.")
    cpus_per_worker: int = Field(
        default=1, ge=1, le=1024, description="CPUs, and threads, per worker."
    )
    gpus_per_worker: AskedGpus = Field(
        default=0, ge=0, le=64, description="GPUs per worker, or the part of one, such as 0.5."
    )
    refresh: Literal["never", "on_arrival"] = Field(
        default="on_arrival",
        description="Whether to refresh the vector, without labels, when it interferes with tasks "
        "that arrive later.",
    )
    share: Literal["samples", "statistics", "none"] = Field(
        default="samples",
        description="What training runs of other tasks see of this task's inputs.",
    )
    heads: Literal["fitted", "trained"] = Field(
        default="fitted",
        exclude_if=lambda heads: heads == "fitted",
        description="Head with which the task is answered: fitted again on its labelled rows, "
        "together with those of other tasks, or the one that its vector was trained under.",
    )
    seed: int = Field(
        default=0, ge=-(2**63), le=2**63 - 1, description="Seed of splits, batches and samples."
    )
    skip_bad: bool = Field(
        default=False,
        exclude_if=operator.not_,
        description="Leave out rows without a class or a readable input, and say how many.",
    )

    @model_validator(mode="after")
    def _meet(self) -> Self:
        if self.workers > 1 and 0 < self.gpus_per_worker < 1:
            raise ValueError("workers of one training meet by NCCL, each with a GPU of its own")
        return self


class Reading(Message):
    """What may be said about rows of data; None: the data show it. It is declared here only, as
    what is chosen for a run is in `Options`; over HTTP there are limits in addition."""

    input_column: str | None = Field(
        default=None,
        description="Column of the pictures or texts. Default: by type.",
        examples=["review"],
    )
    label_column: str | None = Field(
        default=None, description="Column of the classes. Default: by type.", examples=["stars"]
    )
    classes: tuple[str, ...] | None = Field(
        default=None,
        description="Names of the classes 0, 1, ...; or the strings that may occur.",
        examples=[["ham", "spam"]],
    )


UNSAID = Reading()


class Submission(Message):
    """A checked task, as `ingest` made it: its data are already in the blob store."""

    request_id: str
    name: str
    owner: str
    private: bool = False  # only its owner's trainings see its samples, and only its owner sees it
    modality: Modality
    classes: tuple[str, ...]
    templates: tuple[str, ...] = ()
    train: BlobRef
    validation: BlobRef
    test: BlobRef
    shard: BlobRef
    options: Options = Options()
    vector_blob: str | None = None  # of a vector made elsewhere: it is measured, nothing is trained
    # Left out if there is none: a request is recognised by its content.
    skipped: int = Field(default=0, exclude_if=operator.not_)  # bad rows that were left out
    notes: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    # digest of all rows with their classes, whatever their order and their splits
    rows: str = Field(default="", exclude_if=operator.not_)

    @property
    def parts(self) -> dict[str, BlobRef]:
        return {name: getattr(self, name) for name in ("train", "validation", "test", "shard")}


class Shard(Message):
    """One version of one task's unlabelled samples, as it is sent to a learner.

    A later version of a task's shard replaces the earlier one and has its rows too.
    """

    task: str  # a task's name, or GENERIC
    ordinal: int  # order of arrival of the task; GENERIC is 0
    blob: BlobRef
    version: int = 1
    statistics: str | None = None  # blob digest of what others see instead of the samples
    head: str = ""  # blob digest of the task's head, once the task has a vector


class Arrival(Message):
    """A run knows this shard from `step` on; if its task was removed, before step `left`."""

    step: int
    shard: Shard
    left: int | None = None

    @property
    def changed(self) -> int:
        """The step at which it changed last."""
        return max(self.step, self.left or 0)


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

    @property
    def name(self) -> str:
        return f"{self.task}@v{self.version}"


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
