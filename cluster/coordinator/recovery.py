"""Rebuilds the plan's state from the registry, when a coordinator starts or is unsure of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Set
from functools import cached_property

from cluster.coordinator.board import KINDS
from cluster.domain.status import OF_TASKS, OWED, STOPPED, RunState
from cluster.domain.tasks import Options, Shard, Submission
from cluster.domain.work import (
    ComposeWork,
    EvaluateWork,
    FitWork,
    MeasureWork,
    RefreshWork,
    TrainWork,
    VectorWork,
    Work,
    tasks_of,
)
from cluster.registry import Registry, RunRecord
from cluster.scheduler.budget import allowance
from cluster.scheduler.finishing import KEPT
from cluster.scheduler.matrix import restore
from cluster.scheduler.queue import needs_of, urgency_of
from cluster.scheduler.state import (
    Effect,
    MatrixCell,
    PlannedRun,
    PlannedTask,
    State,
    VectorVersion,
)
from cluster.scheduler.upkeep import ONCE


def restored(registry: Registry, base: str, running: Collection[str] = ()) -> State:
    """The state of everything accepted. What is owed is queued, but for the runs that are
    `running`. `base`: the base's digest."""
    state = State(base)
    tasks = {task.name: task.submission for task in registry.tasks(with_removed=True)}
    for shard in registry.shards():  # a later version replaces the earlier
        state.tasks[shard.task] = planned_task(shard, tasks.get(shard.task))
    state.owners = {name: task.owner for name, task in tasks.items() if task.private}
    _restore_vectors(state, registry)
    for record in (*registry.runs(OWED), *registry.runs(STOPPED, kinds=OF_TASKS)):
        run = planned(record, record.run_id in running)
        state.runs[run.run_id] = run
        if run.state == RunState.FAILED:
            state.unmeasurable.update(run.cells)
    for kind in ONCE:
        state.done.update(registry.run_ids(RunState.DONE, kind))
    state.numbers = max((run.number for run in state.runs.values()), default=0)
    state.ask.update(state.champions)
    state.balance = registry.balance()
    return state


def keep(before: State, state: State) -> None:
    """Copy into a state that was read again what this process alone knows: the room, whose turn it
    is after all that started and gave way, and what was paid for runs that did not start."""
    state.nodes, state.free, state.over = before.nodes, before.free, before.over
    state.turns, state.started, state.passed = before.turns, before.started, before.passed
    state.refreshes, state.before_fit = before.refreshes, before.before_fit
    state.fit_turns = before.fit_turns
    for run_id in state.runs.keys() & before.runs.keys():
        run, known = state.runs[run_id], before.runs[run_id]
        run.gave_way, run.cost = known.gave_way, known.cost


class SeenLater(Set[str]):
    """Digests of the shards that the vector of a run has met, read on first use: a start that read
    them all would read a list for each pair of tasks."""

    def __init__(self, registry: Registry, run_id: str) -> None:
        self._registry, self._run_id = registry, run_id

    @cached_property
    def _found(self) -> frozenset[str]:
        return self._registry.seen(self._run_id)

    def __contains__(self, digest: object) -> bool:
        return digest in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _restore_vectors(state: State, registry: Registry) -> None:
    for ref in registry.champion_references().values():
        seen = SeenLater(registry, ref.run_id)
        state.champions[ref.task] = VectorVersion(ref.version, ref.digest, seen)
    rows: dict[str, dict[str, Effect]] = {task: {} for task in state.champions}
    state.near = {pair for pair in registry.near() if state.tasks.keys() >= {*pair}}
    current = {name: (task.shard, task.head) for name, task in state.tasks.items()}
    for task, row in registry.champion_effects():
        if task in rows:
            rows[task] |= {
                one.on: Effect(one.tau_jp, one.logits)
                for one in row
                if current.get(one.on) == (one.shard_digest, one.head)
            }
    restore(state, rows)
    state.promoted = dict.fromkeys(task for task in state.tasks if task in state.champions)


def planned_task(shard: Shard, task: Submission | None) -> PlannedTask:
    """A task as the plan knows it; the generic samples are of none."""
    options, owner = (task.options, task.owner) if task else (Options(), "")
    allowed = allowance(task.train.rows, options) if task else 0
    return PlannedTask(shard.ordinal, options, shard.blob.digest, owner, shard.head, allowed)


def planned(record: RunRecord, running: bool = False) -> PlannedRun:
    """A run of the registry as the plan knows it."""
    owed = RunState.RUNNING if running else RunState.QUEUED
    state = RunState.FAILED if record.state in STOPPED else owed
    work = record.work
    known = record.run_id, record.kind, record.number, record.task
    needs = needs_of(record.kind, _options_of(work))
    if isinstance(work, VectorWork):
        needs = needs._replace(gpus=work.gpus)  # those that its learner has, if it runs
    urgency = urgency_of(record.kind, _imports(work), record.user)
    run = PlannedRun(*known, needs, urgency, state, record.deaths, cells_of(work), user=record.user)
    if isinstance(work, RefreshWork):
        run.others = frozenset(shard.task for shard in work.others)
    if isinstance(work, EvaluateWork | ComposeWork):
        run.model = dict.fromkeys(tasks_of(work), "")
    if isinstance(work, EvaluateWork):
        run.model |= {one.name: one.fitted_head for one in work.tasks if one.fitted_head}
    if isinstance(work, FitWork):
        run.owner, run.tasks = work.owner, work.listed.rows
    return run


def past_durations(registry: Registry) -> Iterator[tuple[PlannedRun, float]]:
    """The latest runs of each kind that have a result, and their seconds."""
    for kind in ("train", *KINDS):
        for record in registry.runs(states=(RunState.DONE,), kinds=(kind,), newest=KEPT):
            if record.started is not None and record.ended is not None:
                yield planned(record), record.ended - record.started


def _options_of(work: Work) -> Options:
    """The submitter's options that matter for this work."""
    if isinstance(work, TrainWork):
        return work.submission.options
    return work.options if work.kind == "refresh" else Options()


def _imports(work: Work) -> bool:
    """Whether its vector is imported: then it exists already."""
    return isinstance(work, TrainWork) and work.submission.vector_blob is not None


def cells_of(work: Work) -> tuple[MatrixCell, ...]:
    """The pairs that a measure measures; () for other work."""
    if not isinstance(work, MeasureWork):
        return ()
    return tuple(
        MatrixCell(vector.task, vector.digest, shard.task, shard.blob.digest, shard.head)
        for vector, shard in work.pairs
    )
