"""The state of tasks, runs and the cluster.

Times are seconds since 1970; accuracies are shares in [0, 1].
"""

from __future__ import annotations

from enum import StrEnum
from typing import Generic, Literal, TypeVar

from cluster.domain.base import Base, BlobRef, Gpus, Modality, Reply
from cluster.domain.compositions import Composition, Method, Report
from cluster.domain.tasks import Options, Submission


class RunState(StrEnum):
    """The state of a piece of work."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    WITHDRAWN = "withdrawn"  # its task was removed


RunKind = Literal["train", "refresh", "measure", "fit", "evaluate", "compose"]  # as of its work
OF_TASKS: tuple[RunKind, ...] = ("train", "refresh", "measure", "fit")
OF_MODELS: tuple[RunKind, ...] = ("evaluate", "compose")  # of users
_OfRun = Literal[
    "queued", "started", "gave way", "died", "failed", "cancelled", "withdrawn", "retried", "anew"
]
_OfResult = Literal["published", "measured", "refused", "fitted", "forgotten", "evaluated", "made"]
_OfTask = Literal["submitted", "samples", "near", "removed", "purged", "alias"]
EventKind = Literal[_OfTask, _OfRun, _OfResult, "founded", "token", "composed"]
NAMED = 40  # tasks that one request may name
OWED = (RunState.QUEUED, RunState.RUNNING)
STOPPED = (RunState.FAILED, RunState.CANCELLED)  # and may be queued again


class WaitsFor(StrEnum):
    """What a queued run waits for."""

    TURN = "turn"  # others go first
    ROOM = "room"  # until others end
    NODES = "nodes"  # the cluster can never hold it as it is: more nodes, or an end of serving


class Phase(StrEnum):
    """What a training, or an import, does beside its steps."""

    STARTING = "starting"  # its process
    LOADING = "loading"  # the base model
    HEAD = "head"  # makes the one that its vector is trained under, in a pass over its rows
    STATISTICS = "statistics"  # computes those that it shares instead of samples
    ENGINE = "engine"  # sets it up
    SAMPLES = "samples"  # reads and compares those of other tasks, for its first step
    MEASURING = "measuring"  # its vector, after the last step


class TaskState(StrEnum):
    """The state of a task: that of its training."""

    QUEUED = "queued"
    TRAINING = "training"
    READY = "ready"
    FAILED = "failed"
    CANCELLED = "cancelled"


class CompositionState(StrEnum):
    """The state of a composition that is computed."""

    QUEUED = "queued"
    RUNNING = "running"
    READY = "ready"
    FAILED = "failed"
    CANCELLED = "cancelled"


def task_state(training: RunState) -> TaskState:
    """The state of a task that was not removed, from that of its training."""
    other = {RunState.RUNNING: TaskState.TRAINING, RunState.DONE: TaskState.READY}
    return other.get(training) or TaskState(training)


def composition_state(run: RunState) -> CompositionState:
    """The state of a composition, from that of the run that makes it."""
    other = {RunState.DONE: CompositionState.READY, RunState.WITHDRAWN: CompositionState.FAILED}
    return other.get(run) or CompositionState(run)


S = TypeVar("S", bound=StrEnum)


class RunProgress(Reply, Generic[S]):
    """How far a run is. `reason`: why it waits, or why it failed; `waits_for`: of a run that waits.
    `expected`: an estimate of when it will be done, from its steps, from how long such runs took
    before and from what goes first; None if it is not known, as for a training without a step.
    `phase`: what a running training does beside its steps; None while it does these."""

    run_id: str
    state: S
    phase: Phase | None = None
    step: int | None = None  # optimizer steps, or rows evaluated; None before the first, or without
    steps: int | None = None
    loss: float | None = None
    penalty: float | None = None
    attempt: int
    waits_for: WaitsFor | None = None
    expected: float | None = None
    reason: str | None = None
    created: float
    started: float | None = None
    ended: float | None = None

    @property
    def is_owed(self) -> bool:
        return self.state in (*OWED, TaskState.TRAINING)


class RunStatus(RunProgress[RunState]):
    """A piece of work. `user`: whose model is composed or evaluated; `version`: of the task's
    vector that is refreshed."""

    shown = ("about", "state", "step", "steps", "reason")

    kind: RunKind
    task: str | None
    version: int | None = None
    user: str | None = None
    about: str  # in a few words, for people

    @property
    def label(self) -> str:
        return self.about


class TaskStatus(RunProgress[TaskState]):
    """A task, its training and its current vector.

    `ordinal`, the order of arrival, is None if the requester must not see that there are others.
    `refresh` is the state of a refresh that is owed or failed; `refresh_waits`: its vector is due
    for one, which waits until the budget of arrivals reaches it. `near`: tasks whose samples are of
    the same kind as its own; it is not trained or refreshed against these, nor measured on them.
    """

    shown = (
        *("name", "state", "step", "steps", "version", "accuracy_before", "accuracy_after"),
        *("accuracy_fitted", "accuracy_frozen", "owner", "reason"),
    )

    name: str
    owner: str
    private: bool
    imports: bool = False  # its vector comes from elsewhere and is not trained here
    ordinal: int | None
    modality: Modality
    classes: int
    rows: int  # to train on
    samples: int | None = None  # in the sample store
    options: Options
    version: int | None = None
    rows_cut: int | None = None  # of them, texts whose end is beyond what the base model reads
    accuracy_before: float | None = None  # without a vector (`Base.untrained`), validation rows
    accuracy_after: float | None = None  # of the vector as it was trained, on validation rows
    accuracy_fitted: float | None = None  # of the champion in sums, with its fitted head
    accuracy_frozen: float | None = None  # of a head fitted on the same rows without any vector
    metrics: dict[str, float] = {}
    refresh: RunState | None = None
    refresh_waits: bool = False
    near: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.name


class ShardStatus(Reply):
    """One version of a task's part of the sample store."""

    task: str
    ordinal: int | None
    blob: BlobRef
    version: int
    statistics: str | None = None
    head: str = ""


class TaskDetail(TaskStatus):
    """A task with everything about it. `submission` is for its owner's machine alone; `curves` are
    those of its vectors, by version."""

    submission: Submission | None = None
    shards: tuple[ShardStatus, ...] = ()
    runs: tuple[RunStatus, ...] = ()
    curves: dict[str, dict[str, list[float]]] = {}


class NodeStatus(Reply):
    cpus: int
    gpus: int = 0


class Resources(Reply):
    """What the cluster has, and what of it neither runs nor serving hold."""

    shown = ("free_cpus", "cpus", "free_gpus", "gpus")

    nodes: tuple[NodeStatus, ...]
    cpus: int
    free_cpus: int
    gpus: int
    free_gpus: Gpus


class ClusterStatus(Reply):
    """Tasks by arrival, and work other than training that is owed, failed or cancelled: of both,
    what is new since the version in the request.

    `whole`: nothing that was returned before holds any more; `gone`: names of tasks and ids of runs
    that are gone; `more`: request again, for what is new since `version`. `trouble`: what the
    cluster cannot do now, and tries again.
    """

    shown = ("tasks", "work", "room", "trouble")

    base: Base
    tasks: tuple[TaskStatus, ...]
    work: tuple[RunStatus, ...]
    room: Resources
    trouble: str | None = None
    version: str = ""
    whole: bool = True
    more: bool = False
    gone: tuple[str, ...] = ()


class CompositionRun(RunProgress[CompositionState]):
    """The status of a composition run; it has the model and a report once it is ready."""

    user: str
    method: Method
    terms: tuple[str, ...]
    model: Composition | None = None
    report: Report | None = None

    @property
    def label(self) -> str:
        return f"composing by {self.method}"


class Event(Reply):
    """Something that happened to a task."""

    at: float
    kind: EventKind
    task: str | None
    run_id: str | None
    text: str


Watched = TaskStatus | RunStatus | CompositionRun  # what progress is shown of
