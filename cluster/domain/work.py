"""What learners are given and what they return: digests in, digests out."""

from __future__ import annotations

import operator
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, JsonValue

from cluster.domain import compositions
from cluster.domain.base import Base, BlobRef, Gpus, Message
from cluster.domain.status import Phase
from cluster.domain.tasks import Arrival, Options, Pair, Shard, Submission, VectorRef
from cluster.domain.visibility import Visibility


class Piece(Message):
    """What all work has. `run_id` names the checkpoints too; `attempt`: which start of the run."""

    run_id: str
    base: Base
    attempt: int = 0


class TrainWork(Piece):
    """Train one task: digests in, a `Trained` out."""

    kind: Literal["train"] = "train"
    submission: Submission


class RefreshWork(Piece):
    """Label-free refresh of `vector` against the shards of other tasks."""

    kind: Literal["refresh"] = "refresh"
    vector: VectorRef
    first: VectorRef | None = None  # the version before its first refresh, if it was refreshed
    own: Shard
    others: tuple[Shard, ...]
    options: Options


class VectorWork(Piece):
    """Work with existing vectors. No option says where it runs: the plan chooses, at each start
    (`cluster.scheduler.gpus`). `gpus`: how much of one this attempt has; 0: it runs on the CPU."""

    gpus: Gpus = Field(default=0, exclude_if=operator.not_)


class MeasureWork(VectorWork):
    """Measure tau_jp for every (vector, shard) pair named."""

    kind: Literal["measure"] = "measure"
    pairs: tuple[tuple[VectorRef, Shard], ...]


class FitTask(Message):
    """What fitting heads needs of one task: its champion, its labelled rows, and its heads from an
    earlier fit of that champion."""

    vector: VectorRef
    train: BlobRef
    validation: BlobRef
    fitted: compositions.FittedHead | None = None


class FitWork(VectorWork):
    """Fit the heads of the `listed` tasks again, together, under sums of their vectors."""

    kind: Literal["fit"] = "fit"
    owner: str  # of the private tasks among these; "" if there are none
    # a FitTask for each (`cluster.storage.listed`); it has no digest until the run first starts
    listed: BlobRef


class TaskRows(Message):
    """What making a composition needs of one task of its recipe."""

    name: str
    head_blob: str
    validation: BlobRef
    train: BlobRef | None = None  # if its head is to be fitted under the model


class ComposeWork(VectorWork):
    """Make a composition of `terms`, with coefficients as they were written, for a user."""

    kind: Literal["compose"] = "compose"
    user: str
    terms: tuple[compositions.RecipeTerm, ...]
    making: compositions.CompositionMethod
    tasks: tuple[TaskRows, ...]
    probes: tuple[Shard, ...]  # on which tau_jp is measured again


class TaskData(Message):
    """What evaluation needs of one task."""

    name: str
    classes: tuple[str, ...]
    head_blob: str  # the one that its vector was trained under
    fitted_head: str | None = None  # the one that it answers with
    frozen_head: str | None = None  # fitted on the same rows at theta0
    test: BlobRef
    individual: VectorRef | None  # the first version; None for what was fitted to


class EvaluateWork(VectorWork):
    """Evaluate a composition on the test split of every task it names.

    `materialized`: also as one ordinary model theta0 + sum c tau, which is what is exported.
    `without`: also with each of its vectors left out.
    """

    kind: Literal["evaluate"] = "evaluate"
    composition: compositions.Composition
    tasks: tuple[TaskData, ...]
    materialized: bool = False
    without: bool = False


Work = TrainWork | RefreshWork | MeasureWork | FitWork | EvaluateWork | ComposeWork


def user_of(work: Work) -> str | None:
    """The user whose model the work is about; None for other work."""
    if isinstance(work, ComposeWork):
        return work.user
    return work.composition.user if isinstance(work, EvaluateWork) else None


def asked_by(work: Work) -> str | None:
    """The requester; None for what the plan ordered itself."""
    return work.submission.owner if isinstance(work, TrainWork) else user_of(work)


def tasks_of(work: Work) -> set[str]:
    """The tasks that a piece of work is about; none for a fit, whose tasks the plan knows."""
    if isinstance(work, TrainWork):
        return {work.submission.name}
    if isinstance(work, RefreshWork):
        return {work.vector.task}
    if isinstance(work, MeasureWork):
        return {name for vector, shard in work.pairs for name in (vector.task, shard.task)}
    if isinstance(work, FitWork):
        return set()
    if isinstance(work, EvaluateWork):  # a task that it was fitted to is nobody's
        return {term.vector.task for term in work.composition.terms}
    return {task.name for task in work.tasks}  # of a model


def is_visible(work: Work, visibility: Visibility) -> bool:
    """Whether the viewer sees every task that it is about."""
    if isinstance(work, FitWork):
        return visibility.viewer is None or work.owner in ("", visibility.viewer)
    return visibility.sees_all(tasks_of(work))


def about(work: Work) -> str:
    """A piece of work in a few words."""
    if isinstance(work, TrainWork):
        verb = "training" if work.submission.vector_blob is None else "importing"
        return f"{verb} {work.submission.name}"
    if isinstance(work, RefreshWork):
        return f"refreshing {work.vector.name}"
    if isinstance(work, MeasureWork):
        count = len(work.pairs)
        return f"measuring {count} pair{'s' if count > 1 else ''} of vector and task"
    if isinstance(work, FitWork):
        count = work.listed.rows
        return f"fitting the heads of {count} task{'s' if count > 1 else ''}"
    if isinstance(work, ComposeWork):
        return f"composing by {work.making.method} the model of {work.user}"
    return f"evaluating the model of {work.composition.user}"


class Progress(Message):
    """How far a run is: optimizer steps, test rows of an evaluation, pairs of a measure or tasks of
    a fit, done; None before a training knows them. `phase`: what it does beside them now."""

    step: int | None = None
    steps: int | None = None
    phase: Phase | None = None
    loss: float | None = None  # of the latest optimizer step
    penalty: float | None = None


class Lease(Message):
    """What a run requests: leave to do its optimizer steps `first` to `last` without asking again,
    and the changes after step `since` (-1: all) in what its steps see."""

    run_id: str
    first: int
    last: int
    since: int = -1
    progress: Progress | None = None
    attempt: int | None = None  # None: whichever runs now


class Leave(NamedTuple):
    """The answer to a lease: about a page of changes, the earliest first; how many seconds the next
    lease should be; and whether the run must give its place back instead, before the first of these
    steps. A plain tuple, because many runs ask all the time."""

    arrivals: tuple[Arrival, ...]
    seconds: float
    gives_way: bool = False


class Trained(Message):
    """A finished training run; the vector and head files are already in the blob store."""

    vector_digest: str
    vector_blob: str
    head_blob: str
    config: dict[str, JsonValue]  # the whole algorithm configuration, defaults resolved
    metrics: dict[str, float]  # validation_zero_shot, validation_accuracy, seconds, ...
    curves: dict[str, list[float]]  # step, loss, penalty; of many steps, some evenly spaced
    norm: float  # |tau|_2
    pairs: tuple[Pair, ...] = ()  # its row of the tau_jp matrix; version is filled on publish
    near: tuple[str, ...] = ()  # tasks whose samples are the same kind of data, and were left out


class Refreshed(Message):
    """A finished refresh: a new vector, or the reason why the old one stays."""

    accepted: bool
    reason: str
    vector_digest: str | None = None
    vector_blob: str | None = None
    config: dict[str, JsonValue]
    metrics: dict[str, float]  # own_change, interference_before, interference_after, seconds
    curves: dict[str, list[float]]
    norm: float | None = None
    pairs: tuple[Pair, ...] = ()


class Measured(Message):
    """The effects of every pair that was requested."""

    pairs: tuple[Pair, ...]


CONFUSED = 200  # classes of a task at most whose confusions are counted: C x C numbers


class ClassReport(Message):
    """The classes of one task on its test rows. `confusion`: rows of a class (row) that were
    answered with a class (column); empty for more than CONFUSED classes. None: there is nothing to
    divide by."""

    classes: tuple[str, ...]
    accuracy: tuple[float | None, ...]
    f1: tuple[float | None, ...]
    confusion: tuple[tuple[int, ...], ...]


# A number that is left out of JSON where it was not measured.
Figure = Annotated[float | None, Field(exclude_if=lambda figure: figure is None)]


class TaskAccuracy(Message):
    """Shares in [0, 1] of the test `rows` of one task: with no vector, with the model, with the
    first version of its own vector, alone, by today's head, with the model as one ordinary one;
    `unknown`: the task not named; `frozen`: of a classifier on the base, fitted on the same rows.
    """

    zero_shot: float
    composed: float
    individual: Figure = None
    materialized: Figure = None
    rows: Figure = None
    unknown: Figure = None
    frozen_known: Figure = None
    frozen_unknown: Figure = None


class MeasuredAccuracies(Message, extra="ignore"):
    """Accuracies in [0, 1] on the test split; means are over the tasks that the model adds.
    `without`: term -> task -> accuracy with this vector left out, by the same heads; empty if that
    was not requested. `unjudged`: what the model was fitted to, if no rows of it were held out; the
    means are then over the tasks of its vectors. Read from a stored `Evaluated`, its classes, which
    may be many, are skipped."""

    shown = (
        *("per_task", "absolute", "normalized", "unknown", "calibration_error", "none_auroc"),
        *("frozen_known", "frozen_unknown", "without", "unjudged"),
    )

    per_task: dict[str, TaskAccuracy]
    absolute: float
    normalized: float | None  # None for what it was fitted to, which has no vector of its own
    # task unknown, with the heads of the training; None if no task can answer unnamed
    class_incremental: float | None
    task_unknown: float | None = None  # with the heads that answer
    materialized_unknown: Figure = None  # the same as one ordinary model, which is what is exported
    calibration_error: float | None = None  # of P(task, class | x)
    none_auroc: float | None = None  # of own rows against those of tasks that it does not have
    frozen_known: float | None = None  # a classifier on the base, fitted on the same rows
    frozen_unknown: float | None = None
    without: dict[str, dict[str, float]] = {}
    unjudged: tuple[str, ...] = ()
    seconds: float

    @property
    def unknown(self) -> float | None:
        """Accuracy with the task unknown; in evaluations from before heads were fitted again, with
        the heads of the training."""
        return self.class_incremental if self.task_unknown is None else self.task_unknown


class Evaluated(MeasuredAccuracies, extra="forbid"):
    """The result of an evaluation. `by_class`: of the composed model; empty if an earlier version
    evaluated it."""

    by_class: dict[str, ClassReport] = {}


class Composed(Message):
    """A finished composition: a recipe with its coefficients, or a merged tau in the blob store."""

    terms: tuple[compositions.RecipeTerm, ...]
    merged: compositions.Merged | None = None
    target: compositions.Target | None = None
    fitted: compositions.Fitted | None = None
    report: compositions.Report


Result = Trained | Refreshed | Measured | compositions.Fitted | Evaluated | Composed
