"""Reports on vectors and models: versions, aliases, differences, interference, accuracies."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from cluster.domain.base import Reply
from cluster.domain.compositions import Method
from cluster.domain.status import Event


class MetShard(Reply):
    """Samples that a vector was made against: version `version` of those of `task`, from step
    `step` on and before step `left`."""

    step: int
    left: int | None = None
    task: str
    version: int


class VectorStatus(Reply):
    """One version of a task's vector, and what made it. `arrivals`: the first 16 of the `met`
    samples that it was made against; `curves`: of at most 2,000 steps of its training, left out of
    lists of all tasks."""

    task: str
    version: int
    digest: str
    blob: str
    head_blob: str
    run_id: str
    parent: int | None = None
    regime: str
    champion: bool
    norm: float | None  # |tau|_2
    metrics: dict[str, float]
    config: dict[str, JsonValue]
    curves: dict[str, list[float]]
    created: float
    arrivals: tuple[MetShard, ...]
    met: int = 0

    @property
    def name(self) -> str:
        return f"{self.task}@v{self.version}"


class NeededFiles(Reply):
    """The files that something needs: by digest, what each is, for people."""

    files: dict[str, str]


Differences = dict[str, tuple[JsonValue, JsonValue]]


class VectorComparison(Reply):
    """Two versions of a vector: name -> (value, value), only where they differ."""

    task: str
    versions: tuple[int, int]
    made: Differences
    metrics: Differences
    config: Differences
    tau_jp: Differences
    arrivals: Differences


class AliasChange(Reply):
    """An alias went from one version to another."""

    at: float
    name: str
    came_from: int | None
    version: int
    cause: str  # published | asked


class AliasReport(Reply):
    """What the aliases of a task mean, and their changes, oldest first, or a page of these."""

    aliases: dict[str, int]
    history: tuple[AliasChange, ...]


class MeasuredVector(Reply):
    task: str
    version: int
    norm: float | None


class MeasuredPair(Reply):
    """What version `version` of the vector of task `vector` does to the inputs of `on`; `raw`,
    `relative` and `logits` as in InterferenceReport."""

    vector: str
    version: int
    on: str
    raw: float
    relative: float | None
    logits: float | None


class InterferenceFinding(Reply):
    """`kind`: "interference" of vector `first` on task `second`, or "norm" of two vectors."""

    kind: Literal["interference", "norm"]
    first: str
    second: str
    value: float
    message: str


Table = tuple[tuple[float | None, ...], ...]  # a row per vector, a column per probe; None: unknown


class InterferenceReport(Reply):
    """The champions on the probes of `on`, in order of arrival.

    `raw` is mean |J(x) tau|; `relative` is that in relation to what the task's own vector does
    there; `logits` is the same for the change of the task's logits
    (`tacl.evaluation.interference`); `high` is a value of logits that is warned of; `missing`
    counts the pairs still to be measured; `loudest` are the pairs of all tasks, not of these alone,
    that change most answers.
    """

    vectors: tuple[MeasuredVector, ...]
    on: tuple[str, ...]
    raw: Table
    standard_error: Table
    relative: Table
    logits: Table
    high: float
    missing: int
    findings: tuple[InterferenceFinding, ...]
    loudest: tuple[MeasuredPair, ...] = ()


class TaskInterference(Reply):
    """What the champion of a task `does` to the inputs of others, and what the task `bears` of the
    champions of others: those pairs that change most answers, largest first. `measured`: how many
    pairs of each were measured; `high` as in InterferenceReport."""

    task: str
    high: float
    does: tuple[MeasuredPair, ...]
    bears: tuple[MeasuredPair, ...]
    measured: tuple[int, int]


class UserModel(Reply):
    """A user's model. `outdated`: tasks with a newer champion, but those that occur twice, which
    keep their versions; `again`: the command that makes it of the newer ones, or without what was
    removed; `removed`: tasks that were removed; `purged`: of these, when and by whom they were
    erased: such a model no longer answers."""

    user: str
    digest: str
    method: Method
    terms: tuple[str, ...]
    outdated: tuple[str, ...] = ()
    again: str | None = None
    removed: tuple[str, ...] = ()
    purged: tuple[Event, ...] = ()


class MeasuredModel(Reply):
    """Accuracies of a model on the test rows of its tasks. From `absolute`, their mean over the
    tasks that it adds, to `frozen_unknown` they are as in Evaluated, None if not measured. `user`:
    whose model it was then; `label`: its name in a plot."""

    digest: str
    user: str = ""
    terms: tuple[str, ...]
    method: Method
    at: float
    accuracies: dict[str, float]
    unknowns: dict[str, float] = {}  # the same, where the task is not named
    frozen: dict[str, float] = {}  # of a classifier on the frozen base, the task named
    absolute: float | None = None  # None from a server of an earlier version
    unknown: float | None = None
    frozen_known: float | None = None
    frozen_unknown: float | None = None
    label: str = ""


class AccuracyHistory(Reply):
    """The accuracies of models over time, each model once; tasks by arrival."""

    tasks: tuple[str, ...]
    rows: tuple[MeasuredModel, ...]
