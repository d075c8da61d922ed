"""The state of tasks, runs and the cluster, read from the registry and the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cluster.coordinator.board import Entry, Key, Page, TaskEntry, Tombstone, owners_of
from cluster.domain import status as shown
from cluster.domain import work as orders
from cluster.domain.base import Base, RequestContext
from cluster.domain.figures import RunCount
from cluster.domain.methods import model_of
from cluster.domain.visibility import Visibility
from cluster.reading.asker_view import AskerView
from cluster.registry import RunRecord
from cluster.scheduler.queue import free, in_order, outlook, placeable, reason, waits_for
from cluster.scheduler.state import PlannedRun, State
from cluster.scheduler.upkeep import is_due

NEWEST = 20  # runs, and versions with their curves, in the detail of a task
UNSEEN = "it concerns a private task"
OTHERS = (shown.WaitsFor.TURN, shown.WaitsFor.ROOM)  # if other runs hold it up


@dataclass(frozen=True)
class PlanView(AskerView):
    """What one requester is told, including the plan. `damaged`: by the name of a vector, the
    digest of its missing file."""

    state: State
    damaged: Mapping[str, str]

    @cached_property
    def _outlook(self) -> State:
        return outlook(self.state)

    def status(self, page: Page, base: Base, trouble: str | None) -> shown.ClusterStatus:
        entries = [entry for _, entry in page.entries]
        tasks = [self.task(one) for one in entries if isinstance(one, TaskEntry)]
        work = [one for one in entries if isinstance(one, RunRecord)]
        return shown.ClusterStatus(
            base=base,
            tasks=tuple(sorted(tasks, key=lambda one: one.ordinal or 0)),
            work=tuple(self.run(one) for one in sorted(work, key=lambda one: one.number)),
            gone=tuple(key.name for key, entry in page.entries if isinstance(entry, Tombstone)),
            room=room(self.state),
            trouble=trouble,
            version=page.version,
            whole=page.whole,
            more=page.more,
        )

    def narrowed(
        self, told: shown.ClusterStatus, tells: Callable[[Key], bool]
    ) -> shown.ClusterStatus:
        """The status for a request about these tasks alone: other work is only a number, if one of
        them waits behind it. A task that no node can hold waits for no others, and says why."""
        ahead = self._ahead(tells) if any(one.waits_for in OTHERS for one in told.tasks) else {}
        return told.model_copy(update={"tasks": tuple(_behind(one, ahead) for one in told.tasks)})

    def _ahead(self, tells: Callable[[Key], bool]) -> dict[str, int]:
        """By run, how many of those before it the requester may be told of."""
        ahead, count = dict[str, int](), 0
        for run in _going_first(self.state):
            ahead[run.run_id] = count
            count += tells(_key(run))
        return ahead

    def task(self, entry: TaskEntry) -> shown.TaskStatus:
        name, submission, champion = entry.task.name, entry.task.submission, entry.champion
        trained = entry.first.accepted_metrics if entry.first else {}
        fitted = champion and self.known.heads().newest(champion, self.visibility)
        near = (on for one, on in self.state.near if one == name and self.visibility.sees(on))
        progress = self._progress(entry.training)
        progress |= {"created": entry.task.created}
        if champion and (lost := self.damaged.get(champion.name)):
            reason = f"the file of vector {champion.name} is missing: blob {lost}"
            progress |= {"reason": reason}
        return shown.TaskStatus(
            **progress,
            name=name,
            owner=submission.owner,
            private=submission.private,
            imports=submission.vector_blob is not None,
            state=shown.task_state(entry.training.state),
            ordinal=entry.task.ordinal,
            modality=submission.modality,
            classes=len(submission.classes),
            rows=submission.train.rows,
            samples=entry.samples,
            options=submission.options,
            version=champion and champion.version,
            rows_cut=int(trained["rows_cut"]) if "rows_cut" in trained else None,
            accuracy_before=trained.get("validation_zero_shot"),
            accuracy_after=trained.get("validation_accuracy"),
            accuracy_fitted=fitted and fitted.accuracy,
            accuracy_frozen=fitted and fitted.frozen_accuracy,
            metrics=champion.accepted_metrics if champion else {},
            refresh=entry.refresh,
            refresh_waits=name in self.state.ask and is_due(self.state, name),
            near=tuple(sorted(near)),
        )

    def detail(self, entry: TaskEntry) -> shown.TaskDetail:
        name = entry.task.name
        versions = self.registry.vectors(name, newest=NEWEST)
        return shown.TaskDetail(
            **dict(self.task(entry)),
            submission=entry.task.submission,
            shards=tuple(shown.ShardStatus(**dict(one)) for one in self.registry.shards(name)),
            runs=tuple(map(self.run, self.registry.runs(tasks=[name], newest=NEWEST))),
            curves={str(version.reference.version): version.curves for version in versions},
        )

    def state_of(self, entry: TaskEntry) -> str:
        """A task's state, and why, for the end of a sentence."""
        why = self._reason(entry.training)
        return shown.task_state(entry.training.state) + (f" ({why})" if why else "")

    def run(self, record: RunRecord) -> shown.RunStatus:
        return shown.RunStatus(
            **self._progress(record),
            kind=record.kind,
            task=record.task,
            version=record.version,
            user=record.user if record.kind in ("evaluate", "compose") else None,
            about=_described(record),
            state=record.state,
        )

    def composition_run(self, record: RunRecord) -> shown.CompositionRun:
        work = record.work
        assert isinstance(work, orders.ComposeWork)
        is_done = record.state == shown.RunState.DONE
        result = self.registry.result(record.run_id, orders.Composed) if is_done else None
        model = result and self.known.heads().answering(model_of(work, result), self.state.owners)
        if model is not None:
            foreign = self.visibility.foreign(orders.tasks_of(work), work.user)
            model = model.model_copy(update={"private_to": foreign})
        return shown.CompositionRun(
            **self._progress(record),
            user=work.user,
            method=work.making.method,
            terms=tuple(map(str, work.terms)),
            state=shown.composition_state(record.state),
            model=model,
            report=result and result.report,
        )

    def _progress(self, record: RunRecord) -> dict[str, Any]:
        """The fields of RunProgress. Rank 0 reports steps when it asks for the next, so never the
        last ones."""
        progress, planned = record.progress, self._waiting(record)
        is_done = record.state == shown.RunState.DONE
        return {
            "run_id": record.run_id,
            "phase": _phase(record),
            "step": progress and (progress.steps if is_done else progress.step),
            "steps": progress and progress.steps,
            "loss": progress and progress.loss,
            "penalty": progress and progress.penalty,
            "attempt": record.attempt,
            "waits_for": planned and waits_for(self._outlook, planned),
            "expected": self.state.ends.get(record.run_id) if _is_timed(record) else None,
            "reason": self._reason(record),
            "created": record.created,
            "started": record.started,
            "ended": record.ended,
        }

    def _reason(self, record: RunRecord) -> str | None:
        """Why it waits, or why it failed."""
        own = record.task is not None  # of a task that the requester sees
        if record.cause and not own and not orders.is_visible(record.work, self.visibility):
            return UNSEEN
        if record.state not in (*shown.OWED, shown.RunState.DONE):
            return record.cause
        planned = self._waiting(record)
        parts = [reason(self._outlook, planned, self.visibility)] if planned else []
        parts += [f"started again after: {record.cause}"] if record.cause else []
        return "; ".join(parts) or None

    def _waiting(self, record: RunRecord) -> PlannedRun | None:
        """The run in the plan, if it waits there as in the registry."""
        planned = self.state.runs.get(record.run_id)
        waits = planned is not None and record.state == planned.state == shown.RunState.QUEUED
        return planned if waits else None


def is_visible(context: RequestContext, visibility: Visibility, key: Key, entry: Entry) -> bool:
    """Whether the requester may see an entry of the board, or one that is gone. That a model is
    evaluated or composed reveals that its user has one: over HTTP nobody else is told."""
    if isinstance(entry, TaskEntry) or key.is_task:
        return visibility.sees(key.name)
    if context.limited and entry.kind in ("evaluate", "compose") and entry.user != context.user:
        return False
    owners = entry.owners if isinstance(entry, Tombstone) else owners_of(entry, visibility.owners)
    return visibility.viewer is None or any(one <= {visibility.viewer} for one in owners)


def _behind(task: shown.TaskStatus, ahead: Mapping[str, int]) -> shown.TaskStatus:
    if task.waits_for not in OTHERS or not (others := ahead[task.run_id]):
        return task
    reason = f"behind {others} other{'s' if others > 1 else ''}"
    return task.model_copy(update={"reason": reason})


def _going_first(state: State) -> Iterator[PlannedRun]:
    """What runs, then what waits, in its turn. What no node can hold keeps nobody waiting."""
    yield from state.running
    yield from (one for one in in_order(state) if placeable(state.nodes, one.needs))


def _key(run: PlannedRun) -> Key:
    """The key of a run's entry: a training is part of its task's."""
    is_training = run.kind == "train"
    return Key(is_training, (run.task or "") if is_training else run.run_id)


def _phase(record: RunRecord) -> shown.Phase | None:
    if record.state != shown.RunState.RUNNING:
        return None
    if record.progress is not None:
        return record.progress.phase
    return shown.Phase.STARTING if record.kind == "train" else None


def _is_timed(record: RunRecord) -> bool:
    """Whether the expected end is reported. How long other trainings took says little of one that
    runs: its own steps do, once one is done. (An import has no steps.)"""
    if record.kind != "train" or record.state != shown.RunState.RUNNING:
        return record.state in shown.OWED
    if record.progress is not None and (record.progress.step or 0) > 0:
        return True
    return isinstance(record.work, orders.TrainWork) and bool(record.work.submission.vector_blob)


def _described(record: RunRecord) -> str:
    if record.kind == "refresh":  # its work is long: it is not read for this
        return f"refreshing {record.task}@v{record.version}"
    return orders.about(record.work)


def counted(state: State) -> tuple[RunCount, ...]:
    """The numbers of runs that are owed or failed in the plan, by kind and state."""
    found: Counter[tuple[shown.RunKind, shown.RunState]]
    found = Counter((run.kind, run.state) for run in state.runs.values())
    return tuple(RunCount(kind=k, state=s, runs=n) for (k, s), n in sorted(found.items()))


def room(state: State) -> shown.Resources:
    left = free(state)
    return shown.Resources(
        nodes=tuple(shown.NodeStatus(cpus=node.cpus, gpus=int(node.gpus)) for node in state.nodes),
        cpus=sum(node.cpus for node in state.nodes),
        free_cpus=max(0, left.cpus),
        gpus=int(sum(node.gpus for node in state.nodes)),
        free_gpus=max(0, left.gpus),
    )
