"""What the coordinator knows, the events that change it, and the instructions that it gives.

The state is what the registry says plus what runs now; it can always be rebuilt from there. An
event is a fact that is in the registry already, or the fate of a process.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

from cluster.domain.status import RunKind, RunState
from cluster.domain.tasks import Options


class Urgency(IntEnum):
    """What goes first: what a person waits for, then training and refreshes that somebody asked
    for, then the upkeep of vectors and heads."""

    AWAITED = 0
    TRAINING = 1
    UPKEEP = 2


# -- what is known


class Node(NamedTuple):
    """The resources of a node. No run gets `held_cpus` and `held_gpus` of these, which serving, or
    another actor that stays, holds. A part of a GPU is a multiple of 1/8."""

    cpus: int
    gpus: float = 0
    held_cpus: int = 0
    held_gpus: int = 0


class Needs(NamedTuple):
    """A group of equal workers, each on one node."""

    workers: int = 1
    cpus: int = 1
    gpus: float = 0


ONE_CPU = Needs()


class MatrixCell(NamedTuple):
    """One pair to measure: names are for people, digests identify it."""

    task: str  # whose vector
    vector: str
    on: str  # whose probe
    shard: str
    head: str = ""  # of task `on`, once it has one


class Effect(NamedTuple):
    """What a vector does to a task's inputs: mean |J tau|, and the change of the task's answers."""

    tau_jp: float
    answers: float | None = None  # change of the logits behind its head; None before it had one


class Mark(NamedTuple):
    """Of a row: the most that its vector does to the inputs of another task, relative to what it
    does to its own; and the newest other task in the row, by arrival."""

    loudness: float
    newest: int


# What was measured of a vector: (task, digest of its shard, digest of its head) -> effect.
Row = Mapping[tuple[str, str, str], Effect]


@dataclass
class PlannedTask:
    """A task with samples in the sample store. GENERIC is one too; its options mean nothing."""

    ordinal: int
    options: Options
    shard: str  # digest of its current version
    owner: str = ""
    head: str = ""  # digest, once it has a vector
    allowance: int = 0  # what its arrival may cost (`budget`)

    @cached_property
    def teaches(self) -> bool:
        """Whether its labelled rows may teach heads."""
        return self.options.heads == "fitted" and self.options.share == "samples"


@dataclass(frozen=True)
class VectorVersion:
    """A version of a task's vector: its champion, or one that was just made."""

    version: int
    digest: str
    seen: Set[str]  # digests of the shards it was trained or refreshed against


@dataclass
class PlannedRun:
    """A run that is owed or failed; no failed run of a user's model."""

    run_id: str
    kind: RunKind
    number: int  # order of acceptance
    task: str | None = None
    needs: Needs = ONE_CPU  # of a GPU, if no option says it, what `gpus` allots
    urgency: Urgency = Urgency.UPKEEP
    state: RunState = RunState.QUEUED  # or RUNNING, or FAILED (cancelled is the same here)
    deaths: int = 0
    cells: tuple[MatrixCell, ...] = ()  # of a measure
    others: frozenset[str] = frozenset()  # of a refresh: tasks whose rows it sees
    owner: str = ""  # of a fit: the owner of the private tasks in it, "" if none
    tasks: int = field(default=0, compare=False)  # of a fit: about how many it has
    user: str | None = None  # the requester
    # of a user's model: by task the fitted head that it is evaluated with, "" for none
    model: dict[str, str] = field(default_factory=dict[str, str])
    # of work with vectors: the part of a GPU that it should have; None: not computed yet
    gpus: float | None = field(default=None, compare=False)
    gives_way: bool = False  # it is to give its place back (`giving_way`)
    gave_way: int = 0  # times, since this process began
    # what this process took from the balance for it; given back if it ends before its start is
    # recorded, which sets this to 0
    cost: int = field(default=0, compare=False)


Champions = dict[str, str]  # by task the digest of its vector


@dataclass
class ChampionSet:
    """Champions whose heads are fitted together, and a number that identifies the set."""

    number: int = 0
    champions: Champions = field(default_factory=Champions)


@dataclass
class State:
    """Everything that decisions depend on. Only `handle` changes it."""

    base: str  # digest
    nodes: tuple[Node, ...] = ()
    free: tuple[Node, ...] = ()  # by node, as the cluster reports; () if it does not
    tasks: dict[str, PlannedTask] = field(default_factory=dict[str, PlannedTask])
    # by private task, removed ones too
    owners: dict[str, str] = field(default_factory=dict[str, str])
    champions: dict[str, VectorVersion] = field(default_factory=dict[str, VectorVersion])
    # champion's task -> on -> what is measured
    rows: dict[str, dict[str, Effect]] = field(default_factory=dict[str, dict[str, Effect]])
    # derived from it (`matrix`): on -> whose rows have it; by row, what decides when it is measured
    columns: dict[str, set[str]] = field(default_factory=dict[str, set[str]], compare=False)
    marks: dict[str, Mark] = field(default_factory=dict[str, Mark], compare=False)
    # by row, a bound on how much it changes the answers of others (`loudest`)
    loudest: dict[str, float] = field(default_factory=dict[str, float], compare=False)
    # the same bounds, the smallest first
    by_bound: list[tuple[float, str]] = field(
        default_factory=list[tuple[float, str]], compare=False
    )
    # pairs of tasks whose samples are the same kind of data, each both ways
    near: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    unmeasurable: set[MatrixCell] = field(default_factory=set[MatrixCell])  # their run failed
    runs: dict[str, PlannedRun] = field(default_factory=dict[str, PlannedRun])
    # ids of refreshes and fits that are done: they are not ordered again
    done: set[str] = field(default_factory=set[str])
    # runs of other urgencies started while the first of this one waits
    passed: dict[Urgency, int] = field(default_factory=dict[Urgency, int])
    started: int = 0  # runs, since this process began
    # Users take turns, the lowest first: 2 n after a run of theirs was the n-th to start,
    # 2 n - 1 after they asked for their first run while n had started
    turns: dict[tuple[Urgency, str | None], int] = field(
        default_factory=dict[tuple[Urgency, str | None], int]
    )
    over: frozenset[str] = frozenset()  # users whose runs took their minutes of a day
    ask: set[str] = field(default_factory=set[str])  # tasks whose vector may be due for a refresh
    balance: int = 0  # what may be spent on measuring and refreshing (`budget`)
    refreshes: int = 0  # since this process began: decides whose turn it is
    before_fit: int = 0  # measures and refreshes that were ordered while a fit of heads waited
    # by owner of private tasks, "" for all other tasks: the number of their last fit of heads
    fit_turns: dict[str, int] = field(default_factory=dict[str, int])
    # tasks whose champion changed, the latest at the end
    promoted: dict[str, None] = field(default_factory=dict[str, None], compare=False)
    numbers: int = 0
    changes: int = field(default=0, compare=False)  # events handled so far
    # ids of runs that fit the heads of the present champions, each with the owner of the private
    # tasks in it; None: not computed yet
    fits: dict[str, str] | None = field(default=None, compare=False)
    # for these: by the owner of private tasks, "" for all other tasks, the champions to fit; None:
    # not computed yet
    champion_sets: dict[str, ChampionSet] | None = field(default=None, compare=False)
    # estimated ends of runs, as of the last look: only reported, no decision depends on them
    ends: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def running(self) -> list[PlannedRun]:
        return [run for run in self.runs.values() if run.state == RunState.RUNNING]

    @property
    def queued(self) -> list[PlannedRun]:
        return [run for run in self.runs.values() if run.state == RunState.QUEUED]


# -- what happens


@dataclass(frozen=True)
class NodesChanged:
    """`free` is what each node has left, as far as the cluster knows; it may lag."""

    nodes: tuple[Node, ...]
    free: tuple[Node, ...] = ()


@dataclass(frozen=True)
class MinutesTaken:
    """Of all users with runs now, those whose runs took more than a user's minutes of a day."""

    users: frozenset[str]


@dataclass(frozen=True)
class SamplesArrived:
    """A new task's samples, or a new version of a task's samples; the plan knows the head."""

    task: str
    planned: PlannedTask
    private: bool = False


@dataclass(frozen=True)
class Promoted:
    """The champion of a task was moved to another version by hand; `row` as in Published."""

    task: str
    vector: VectorVersion
    row: Row


@dataclass(frozen=True)
class Removed:
    """A task's samples and vectors are withdrawn, and the runs that use them."""

    task: str
    runs: tuple[str, ...]
    anew: tuple[str, ...] = ()  # runs that met its samples, and start again without


@dataclass(frozen=True)
class RunEvent:
    run_id: str


@dataclass(frozen=True)
class Requested(RunEvent):
    """A run was accepted, or a failed or cancelled one queued again."""

    kind: RunKind
    task: str | None
    needs: Needs
    urgency: Urgency
    user: str | None = None  # the requester
    model: dict[str, str] = field(default_factory=dict[str, str])  # as in PlannedRun


@dataclass(frozen=True)
class Published(RunEvent):
    """A train or refresh ended with a vector; `row` is what was measured of it.

    `champion` is False when the alias had been moved elsewhere meanwhile.
    """

    task: str
    vector: VectorVersion
    row: Row
    head: str
    champion: bool = True
    near: tuple[str, ...] = ()  # tasks whose samples are the same kind of data


@dataclass(frozen=True)
class CellsMeasured(RunEvent):
    values: Mapping[MatrixCell, Effect]


class Ended(RunEvent):
    """A run ended and changed nothing that matters for decisions: an evaluation, a composition, or
    a refresh that was not accepted."""


class Cancelled(RunEvent):
    """A run is no longer wanted; it may be queued again."""


class PlaceGivenBack(RunEvent):
    """A run gave its place back before its end; it continues later from what it kept."""


@dataclass(frozen=True)
class Forgotten:
    """Runs that are done and whose results nobody needs any more; they may be ordered again."""

    runs: frozenset[str]


@dataclass(frozen=True)
class Died(RunEvent):
    """The process of a run is gone; the run may succeed in another one."""

    cause: str


@dataclass(frozen=True)
class Failed(RunEvent):
    """A run ended with an error that it would meet again."""

    cause: str


_OfRun = Requested | Published | CellsMeasured | Ended | Cancelled | PlaceGivenBack | Died | Failed
Event = NodesChanged | MinutesTaken | SamplesArrived | Promoted | Removed | Forgotten | _OfRun


# -- what is to be done


@dataclass(frozen=True)
class Instruction:
    run_id: str


@dataclass(frozen=True)
class Start(Instruction):
    needs: Needs


@dataclass(frozen=True)
class Measure(Instruction):
    """Accept a run that measures these pairs. `cost`: what it takes from the balance."""

    cost: int
    cells: tuple[MatrixCell, ...]


@dataclass(frozen=True)
class RefreshChampion(Instruction):
    """Accept a run that refreshes the task's champion against the other shards, named by task."""

    cost: int
    task: str
    vector: str
    own: str  # digest of its own shard
    others: tuple[tuple[str, str], ...]  # (task, digest of its shard)


@dataclass(frozen=True)
class FitHeads(Instruction):
    """Accept a run that fits the heads of these champions. `owner`: of the private tasks among
    them, "" if there are none."""

    owner: str
    champions: Champions


@dataclass(frozen=True)
class Requeue(Instruction):
    """Queue a run again. `cause`: how its process was lost; None if it gave way. `died`: whether
    this counts as a death."""

    cause: str | None
    died: bool = True


@dataclass(frozen=True)
class Fail(Instruction):
    cause: str


@dataclass(frozen=True)
class Stop(Instruction):
    """End the process of a run, if there is one; the registry has recorded why already."""

    forget: bool = False  # delete its checkpoints too


class Inconsistent(Exception):
    """The state contradicts itself: a bug in this program."""
