"""Where tasks, runs and the cluster are, read from the registry and the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from cluster.coordinator.heads import FittedHeads
from cluster.coordinator.work_orders import tasks_of
from cluster.domain.base import Base
from cluster.domain.compositions import Composition
from cluster.domain.figures import RunCount
from cluster.domain.methods import model_of
from cluster.domain.status import (
    COMPOSITION_STATES,
    OWED,
    STOPPED,
    TASK_STATES,
    ClusterStatus,
    CompositionRun,
    NodeStatus,
    Resources,
    RunProgress,
    RunState,
    RunStatus,
    ShardStatus,
    TaskDetail,
    TaskStatus,
)
from cluster.domain.tasks import CHAMPION, VectorRef
from cluster.domain.visibility import Visibility
from cluster.domain.work import (
    Composed,
    ComposeWork,
    EvaluateWork,
    FitWork,
    MeasureWork,
    RefreshWork,
    TrainWork,
    Work,
)
from cluster.registry import Registry, Run, Task
from cluster.scheduler.queue import free, reason, waits_for
from cluster.scheduler.state import Run as Planned
from cluster.scheduler.state import State
from cluster.scheduler.upkeep import is_due
from tacl.compose.terms import Term

LEFT = (*OWED, *STOPPED)  # work that is owed, or that somebody may want to retry
UNSEEN = "it concerns a private task"

Damages = Mapping[str, str]  # task -> what is wrong with its files


def status(
    base: Base,
    registry: Registry,
    state: State,
    damaged: Damages,
    trouble: str | None,
    heads: FittedHeads,
    visibility: Visibility,
) -> ClusterStatus:
    trainings = {record.run_id: record for record in registry.runs(kinds=("train",))}
    champions = {entry.reference.task: entry.reference for entry in registry.champions()}
    firsts = {entry.reference.task: entry.reference for entry in registry.vectors(version=1)}
    refreshes = {
        record.task: record.state for record in registry.runs(states=LEFT, kinds=("refresh",))
    }
    samples = {shard.task: shard.blob.rows for shard in registry.shards()}
    tasks = tuple(
        TaskStatus(
            **_task(record, trainings[record.run_id], state, damaged, visibility),
            **_vector(champions.get(record.name), firsts.get(record.name)),
            **_fitted(champions.get(record.name), heads, visibility),
            samples=samples[record.name],
            refresh=refreshes.get(record.name),
        )
        for record in registry.tasks()
        if visibility.sees(record.name)
    )
    awaited = registry.awaited()
    others = registry.runs(LEFT, kinds=("refresh", "measure", "fit", "evaluate", "compose"))
    work = tuple(
        run(record, state, visibility)
        for record in others
        if not _is_past(record, champions, awaited)
        and (record.task is None or visibility.sees(record.task))
        if not isinstance(record.work, ComposeWork | FitWork)
        or visibility.sees_all(tasks_of(record.work))
    )
    return ClusterStatus(base=base, tasks=tasks, work=work, room=room(state), trouble=trouble)


def _is_past(record: Run, champions: Mapping[str, VectorRef], awaited: Collection[str]) -> bool:
    """A refresh or a fit that failed, of a vector that is no champion any more; a composition that
    failed or was cancelled, and that its user awaits no more."""
    if record.state in STOPPED and isinstance(record.work, FitWork):
        return any(champions.get(one.vector.task) != one.vector for one in record.work.tasks)
    if record.state not in STOPPED or not isinstance(record.work, RefreshWork | ComposeWork):
        return False
    if isinstance(record.work, ComposeWork):
        return record.run_id not in awaited
    return champions[record.work.vector.task].version != record.work.vector.version


def _task(
    record: Task, training: Run, state: State, damaged: Damages, visibility: Visibility
) -> dict[str, Any]:
    """What a TaskStatus says of the task itself."""
    submission, progress = record.submission, _progress(training, state, visibility)
    return {
        **progress,
        "name": record.name,
        "owner": submission.owner,
        "private": submission.private,
        "state": TASK_STATES[training.state],
        "reason": damaged.get(record.name, progress["reason"]),
        "created": record.created,
        "ordinal": record.ordinal,
        "modality": submission.modality,
        "classes": len(submission.classes),
        "rows": submission.train.rows,
        "options": submission.options,
        "refresh_waits": record.name in state.ask and is_due(state, record.name),
    }


def _vector(champion: VectorRef | None, first: VectorRef | None) -> dict[str, Any]:
    """What a TaskStatus says of the task's vector."""
    trained = first.accepted_metrics if first else {}
    return {
        "version": champion.version if champion else None,
        "rows_cut": trained.get("rows_cut"),
        "accuracy_before": trained.get("validation_zero_shot"),
        "accuracy_after": trained.get("validation_accuracy"),
        "metrics": champion.accepted_metrics if champion else {},
    }


def _fitted(
    champion: VectorRef | None, heads: FittedHeads, visibility: Visibility
) -> dict[str, Any]:
    """What a TaskStatus says of the task's fitted head."""
    found = champion and heads.newest(champion.digest, visibility)
    if not found:
        return {}
    return {"accuracy_fitted": found.accuracy, "accuracy_frozen": found.frozen_accuracy}


def task_state(registry: Registry, state: State, task: Task) -> str:
    """A task's state in a sentence's end, with why."""
    training = registry.run(task.run_id)
    why = _reason(training, state, Visibility(task.submission.owner, state.owners))
    return TASK_STATES[training.state] + (f" ({why})" if why else "")


def task_detail(
    registry: Registry,
    state: State,
    task: Task,
    damaged: Damages,
    heads: FittedHeads,
    visibility: Visibility,
) -> TaskDetail:
    versions = {entry.reference.version: entry for entry in registry.vectors(task.name)}
    references = {version: entry.reference for version, entry in versions.items()}
    champion = references.get(registry.aliases(task.name).get(CHAMPION, 0))
    shards, runs = registry.shards(task.name), registry.runs(task=task.name)
    refreshes = [one.state for one in runs if one.kind == "refresh" and one.state in LEFT]
    return TaskDetail(
        **_task(task, registry.run(task.run_id), state, damaged, visibility),
        **_vector(champion, references.get(1)),
        **_fitted(champion, heads, visibility),
        samples=shards[-1].blob.rows,
        refresh=refreshes[-1] if refreshes else None,
        submission=task.submission,
        shards=tuple(ShardStatus(**dict(shard)) for shard in shards),
        runs=tuple(run(record, state, visibility) for record in runs),
        curves={str(version): entry.curves for version, entry in versions.items()},
    )


def run(record: Run, state: State, visibility: Visibility) -> RunStatus:
    return RunStatus(
        **_progress(record, state, visibility),
        kind=record.kind,
        task=record.task,
        version=record.work.vector.version if isinstance(record.work, RefreshWork) else None,
        user=user_of(record.work),
        about=about(record.work),
        state=record.state,
    )


def _progress(record: Run, state: State, visibility: Visibility) -> dict[str, Any]:
    """The fields of RunProgress. Rank 0 tells of steps when it asks for the next, so of
    the last ones never."""
    progress = record.progress
    done = progress and (progress.steps if record.state == RunState.DONE else progress.step)
    found = RunProgress(
        run_id=record.run_id,
        step=done,
        steps=progress and progress.steps,
        loss=progress and progress.loss,
        penalty=progress and progress.penalty,
        attempt=record.attempt,
        waits_for=waits_for(state, planned) if (planned := _waiting(record, state)) else None,
        reason=_reason(record, state, visibility),
        created=record.created,
        started=record.started,
        ended=record.ended,
    )
    return dict(found)


def _reason(record: Run, state: State, visibility: Visibility) -> str | None:
    """Why it waits, or why it failed."""
    if record.cause and not visibility.sees_all(tasks_of(record.work)):
        return UNSEEN
    if record.state not in (*OWED, RunState.DONE):
        return record.cause
    planned = _waiting(record, state)
    parts = [reason(state, planned, visibility)] if planned else []
    parts += [f"started again after: {record.cause}"] if record.cause else []
    return "; ".join(parts) or None


def _waiting(record: Run, state: State) -> Planned | None:
    """The run in the plan, while it waits there too."""
    planned = state.runs.get(record.run_id)
    waits = planned is not None and record.state == planned.state == RunState.QUEUED
    return planned if waits else None


def user_of(work: Work) -> str | None:
    """Whose model the work is about."""
    if isinstance(work, ComposeWork):
        return work.user
    return work.composition.user if isinstance(work, EvaluateWork) else None


def about(work: Work) -> str:
    """A piece of work in a few words."""
    if isinstance(work, TrainWork):
        verb = "training" if work.submission.vector_blob is None else "importing"
        return f"{verb} {work.submission.name}"
    if isinstance(work, RefreshWork):
        return f"refreshing {work.vector.task}@v{work.vector.version}"
    if isinstance(work, MeasureWork):
        count = len(work.pairs)
        return f"measuring {count} pair{'s' if count > 1 else ''} of vector and task"
    if isinstance(work, FitWork):
        count = len(work.tasks)
        return f"fitting the heads of {count} task{'s' if count > 1 else ''}"
    if isinstance(work, ComposeWork):
        return f"composing by {work.making.method} the model of {work.user}"
    return f"evaluating the model of {work.composition.user}"


def terms_of(model: Composition) -> tuple[str, ...]:
    """As they were written, with the versions they were pinned to."""
    return tuple(str(Term(t.coefficient, t.vector.task, t.vector.version)) for t in model.terms)


def composition_run(
    registry: Registry, record: Run, state: State, visibility: Visibility
) -> CompositionRun:
    work = record.work
    assert isinstance(work, ComposeWork)
    is_done = record.state == RunState.DONE
    result = registry.result(record.run_id, Composed) if is_done else None
    return CompositionRun(
        **_progress(record, state, visibility),
        user=work.user,
        method=work.making.method,
        terms=terms_of(Composition(digest="", user=work.user, terms=work.terms)),
        state=COMPOSITION_STATES[record.state],
        model=result and model_of(work, result),
        report=result and result.report,
    )


def counted(state: State) -> tuple[RunCount, ...]:
    """The runs that are owed or failed."""
    found = Counter((run.kind, run.state) for run in state.runs.values())
    return tuple(RunCount(kind=k, state=s, runs=n) for (k, s), n in sorted(found.items()))


def room(state: State) -> Resources:
    left = free(state)
    return Resources(
        nodes=tuple(NodeStatus(cpus=node.cpus, gpus=node.gpus) for node in state.nodes),
        cpus=sum(node.cpus for node in state.nodes),
        free_cpus=max(0, left.cpus),
        gpus=sum(node.gpus for node in state.nodes),
        free_gpus=max(0, left.gpus),
    )
