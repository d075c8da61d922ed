"""Where tasks, runs and the cluster are, read from the registry and the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from cluster.coordinator.board import Entry, Gone, Key, Page, TaskEntry, owners_of
from cluster.coordinator.heads import FittedHeads
from cluster.coordinator.work_orders import tasks_of
from cluster.domain import status as shown
from cluster.domain import work as orders
from cluster.domain.base import Base, RequestContext
from cluster.domain.compositions import Composition
from cluster.domain.figures import RunCount
from cluster.domain.methods import model_of
from cluster.domain.tasks import VectorRef
from cluster.domain.visibility import Visibility
from cluster.registry import Registry, Run, Task
from cluster.scheduler.queue import free, reason, waits_for
from cluster.scheduler.state import Run as Planned
from cluster.scheduler.state import State
from cluster.scheduler.upkeep import is_due
from tacl.compose.terms import Term

LEFT = (*shown.OWED, *shown.STOPPED)  # work that is owed, or that somebody may want to retry
NEWEST = 20  # runs, and versions with their curves, that a task tells of
UNSEEN = "it concerns a private task"

Damages = Mapping[str, str]  # task -> what is wrong with its files


def status(
    page: Page,
    base: Base,
    trouble: str | None,
    state: State,
    damaged: Damages,
    heads: FittedHeads,
    visibility: Visibility,
) -> shown.ClusterStatus:
    tasks = [entry for _, entry in page.entries if isinstance(entry, TaskEntry)]
    work = [entry for _, entry in page.entries if isinstance(entry, Run)]
    return shown.ClusterStatus(
        base=base,
        tasks=tuple(
            shown.TaskStatus(
                **_task(one.task, one.training, state, damaged, visibility),
                **_vector(one.champion, one.first),
                **_fitted(one.champion, heads, visibility),
                samples=one.samples,
                refresh=one.refresh,
            )
            for one in sorted(tasks, key=lambda one: one.task.ordinal)
        ),
        work=tuple(run(one, state, visibility) for one in sorted(work, key=lambda one: one.number)),
        gone=tuple(key.name for key, entry in page.entries if isinstance(entry, Gone)),
        room=room(state),
        trouble=trouble,
        version=page.version,
        whole=page.whole,
        more=page.more,
    )


def is_seen(context: RequestContext, visibility: Visibility, key: Key, entry: Entry) -> bool:
    """Of an entry of the board, or of what it was. That a model is evaluated or composed tells that
    its user has one: over HTTP nobody else hears of it."""
    if isinstance(entry, TaskEntry) or key.is_task:
        return visibility.sees(key.name)
    if context.limited and entry.kind in ("evaluate", "compose") and entry.user != context.user:
        return False
    owners = entry.owners if isinstance(entry, Gone) else owners_of(entry, visibility.owners)
    return visibility.viewer is None or any(one <= {visibility.viewer} for one in owners)


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
        "state": shown.TASK_STATES[training.state],
        "reason": damaged.get(record.name, progress["reason"]),
        "created": record.created,
        "ordinal": record.ordinal,
        "modality": submission.modality,
        "classes": len(submission.classes),
        "rows": submission.train.rows,
        "options": submission.options,
        "near": tuple(
            sorted(on for one, on in state.near if one == record.name and visibility.sees(on))
        ),
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
    return shown.TASK_STATES[training.state] + (f" ({why})" if why else "")


def task_detail(
    registry: Registry,
    state: State,
    task: Task,
    damaged: Damages,
    heads: FittedHeads,
    visibility: Visibility,
) -> shown.TaskDetail:
    versions = registry.vectors(task.name, newest=NEWEST)
    champion = registry.champion_references([task.name]).get(task.name)
    first = registry.first_references([task.name]).get(task.name)
    shards, runs = registry.shards(task.name), registry.runs(tasks=[task.name], newest=NEWEST)
    refreshes = [one.state for one in runs if one.kind == "refresh" and one.state in LEFT]
    return shown.TaskDetail(
        **_task(task, registry.run(task.run_id), state, damaged, visibility),
        **_vector(champion, first),
        **_fitted(champion, heads, visibility),
        samples=shards[-1].blob.rows,
        refresh=refreshes[-1] if refreshes else None,
        submission=task.submission,
        shards=tuple(shown.ShardStatus(**dict(shard)) for shard in shards),
        runs=tuple(run(record, state, visibility) for record in runs),
        curves={str(entry.reference.version): entry.curves for entry in versions},
    )


def run(record: Run, state: State, visibility: Visibility) -> shown.RunStatus:
    return shown.RunStatus(
        **_progress(record, state, visibility),
        kind=record.kind,
        task=record.task,
        version=record.version,
        user=record.user if record.kind in ("evaluate", "compose") else None,
        about=_about(record),
        state=record.state,
    )


def _progress(record: Run, state: State, visibility: Visibility) -> dict[str, Any]:
    """The fields of RunProgress. Rank 0 tells of steps when it asks for the next, so of
    the last ones never."""
    progress = record.progress
    done = progress and (progress.steps if record.state == shown.RunState.DONE else progress.step)
    found = shown.RunProgress(
        run_id=record.run_id,
        step=done,
        steps=progress and progress.steps,
        loss=progress and progress.loss,
        penalty=progress and progress.penalty,
        attempt=record.attempt,
        waits_for=waits_for(state, planned) if (planned := _waiting(record, state)) else None,
        expected=state.ends.get(record.run_id) if record.state in shown.OWED else None,
        reason=_reason(record, state, visibility),
        created=record.created,
        started=record.started,
        ended=record.ended,
    )
    return dict(found)


def _reason(record: Run, state: State, visibility: Visibility) -> str | None:
    """Why it waits, or why it failed."""
    own = record.task is not None  # then it is about that one alone, and who asks sees it
    if record.cause and not own and not visibility.sees_all(tasks_of(record.work)):
        return UNSEEN
    if record.state not in (*shown.OWED, shown.RunState.DONE):
        return record.cause
    planned = _waiting(record, state)
    parts = [reason(state, planned, visibility)] if planned else []
    parts += [f"started again after: {record.cause}"] if record.cause else []
    return "; ".join(parts) or None


def _waiting(record: Run, state: State) -> Planned | None:
    """The run in the plan, while it waits there too."""
    planned = state.runs.get(record.run_id)
    waits = planned is not None and record.state == planned.state == shown.RunState.QUEUED
    return planned if waits else None


def _about(record: Run) -> str:
    is_refresh = record.kind == "refresh"  # whose work is long: it is not read for this
    return f"refreshing {record.task}@v{record.version}" if is_refresh else about(record.work)


def about(work: orders.Work) -> str:
    """A piece of work in a few words."""
    if isinstance(work, orders.TrainWork):
        verb = "training" if work.submission.vector_blob is None else "importing"
        return f"{verb} {work.submission.name}"
    if isinstance(work, orders.RefreshWork):
        return f"refreshing {work.vector.task}@v{work.vector.version}"
    if isinstance(work, orders.MeasureWork):
        count = len(work.pairs)
        return f"measuring {count} pair{'s' if count > 1 else ''} of vector and task"
    if isinstance(work, orders.FitWork):
        count = len(work.tasks)
        return f"fitting the heads of {count} task{'s' if count > 1 else ''}"
    if isinstance(work, orders.ComposeWork):
        return f"composing by {work.making.method} the model of {work.user}"
    return f"evaluating the model of {work.composition.user}"


def terms_of(model: Composition) -> tuple[str, ...]:
    """As they were written, with the versions they were pinned to."""
    return tuple(str(Term(t.coefficient, t.vector.task, t.vector.version)) for t in model.terms)


def composition_run(
    registry: Registry, record: Run, state: State, visibility: Visibility
) -> shown.CompositionRun:
    work = record.work
    assert isinstance(work, orders.ComposeWork)
    is_done = record.state == shown.RunState.DONE
    result = registry.result(record.run_id, orders.Composed) if is_done else None
    return shown.CompositionRun(
        **_progress(record, state, visibility),
        user=work.user,
        method=work.making.method,
        terms=terms_of(Composition(digest="", user=work.user, terms=work.terms)),
        state=shown.COMPOSITION_STATES[record.state],
        model=result and model_of(work, result),
        report=result and result.report,
    )


def counted(state: State) -> tuple[RunCount, ...]:
    """The runs that are owed or failed."""
    found = Counter((run.kind, run.state) for run in state.runs.values())
    return tuple(RunCount(kind=k, state=s, runs=n) for (k, s), n in sorted(found.items()))


def room(state: State) -> shown.Resources:
    left = free(state)
    return shown.Resources(
        nodes=tuple(shown.NodeStatus(cpus=node.cpus, gpus=node.gpus) for node in state.nodes),
        cpus=sum(node.cpus for node in state.nodes),
        free_cpus=max(0, left.cpus),
        gpus=sum(node.gpus for node in state.nodes),
        free_gpus=max(0, left.gpus),
    )
