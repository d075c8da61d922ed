"""Requests about tasks and their samples."""

from __future__ import annotations

import json
from functools import partial

from cluster.coordinator import work_orders
from cluster.coordinator.acceptance import require_sound
from cluster.coordinator.handler import Decision, RequestHandler
from cluster.coordinator.recovery import planned_task
from cluster.domain.base import BlobRef, RequestContext
from cluster.domain.receipts import (
    CancelledTask,
    GrownShard,
    QueuedRun,
    RemovedTask,
    RetriedTask,
    Submitted,
)
from cluster.domain.status import OWED, STOPPED, RunKind, TaskDetail, TaskState
from cluster.domain.tasks import Shard, Submission
from cluster.domain.work import tasks_of
from cluster.registry import CANCELLED, RunRecord
from cluster.scheduler import upkeep
from cluster.scheduler.state import Removed, SamplesArrived
from cluster.storage.samples import grown
from tacl.compose.terms import Term
from tacl.errors import SameData
from tacl.training.config import Precision

# Work that names its task. Work on models is not here: users request it again; it needs no task.
NAMING: tuple[RunKind, ...] = ("train", "refresh", "measure")


def with_precision(submission: Submission, faster: Precision) -> Submission:
    """Decide it once, so that a training that continues elsewhere gives the same numbers."""
    options = submission.options
    if options.precision is not None:
        return submission
    precision = "float32" if options.gpus_per_worker else faster
    options = options.model_copy(update={"precision": precision})
    return submission.model_copy(update={"options": options})


class TaskRequests(RequestHandler):
    """Methods of `cluster.domain.api.CoordinatorAPI`."""

    def admit(self, context: RequestContext, name: str | None) -> None:
        with self._lock:
            if self._is_repeated(context.request_id, name):
                return
            if name is not None:
                self._registry.require_free(name)
            if context.user is not None:
                self._require_share(context, context.user)

    def _is_repeated(self, request_id: str, name: str | None) -> bool:
        """Whether a submit of this task, or what queues a run, was answered under this id."""
        kept = self._registry.kept(request_id) or ""
        answer = json.loads(kept) if kept.startswith("{") else {}
        return "run_id" in answer and answer.get("task") == name

    def submit(
        self, context: RequestContext, submission: Submission, again: bool = False
    ) -> Submitted:
        """The request's id is that of the submission, whoever sends it."""
        submission = with_precision(submission, self._precision)
        files = [blob.digest for blob in submission.parts.values()]
        files += [submission.vector_blob] if submission.vector_blob is not None else []

        def decide() -> Decision[Submitted]:
            work = work_orders.training(self._base, submission)
            nodes = self._state.nodes
            require_sound(submission, self._base, self._shards, self._blobs, nodes)
            if not again:
                self._require_new(context, submission)
            self._require_share(context, submission.owner, work.run_id, files)
            answer = Submitted(
                task=submission.name,
                run_id=work.run_id,
                state=TaskState.QUEUED,
                skipped=submission.skipped,
                notes=submission.notes,
            )

            def start() -> None:
                (*_, shard) = self._registry.shards(submission.name)
                self._arrived(shard, submission)
                self._execution.request(work.run_id)

            return Decision(answer, partial(self._registry.accept, submission, work), start)

        asked = context.model_copy(update={"request_id": submission.request_id})
        parts = submission.model_dump(mode="json", exclude={"rows"})  # its blobs determine them
        with self._lock, self._accepting(files):
            return self._once(asked, "submit", parts, Submitted, decide, submission.owner)

    def add_samples(self, context: RequestContext, task: str, blob: BlobRef) -> GrownShard:
        def decide() -> Decision[GrownShard]:
            submission = self._seen_task(context, task).submission
            old = self._shards[task]
            both = grown(self._blobs, old.blob, blob)
            version = old.version + (both != old.blob)
            new = old.model_copy(update={"blob": both, "version": version})
            added = both.rows - old.blob.rows
            answer = GrownShard(task=task, version=version, rows=both.rows, added=added)

            def arrive() -> None:
                if new != old:
                    self._arrived(new, submission)

            return Decision(answer, partial(self._registry.grow, new, blob.digest), arrive)

        parts = {"task": task, "blob": blob.digest}
        with self._lock, self._accepting([blob.digest]):
            return self._once(context, "add_samples", parts, GrownShard, decide)

    def retry(self, context: RequestContext, task: str) -> RetriedTask:
        def decide() -> Decision[RetriedTask]:
            self._own_task(context, task)
            stopped = partial(self._registry.runs, STOPPED)
            about = (run for run in stopped(kinds=NAMING, naming=task) if _is_about(run, task))
            fits = (run for run in stopped(kinds=("fit",)) if self._is_fit_of(run.run_id, task))
            chosen = tuple(
                run.run_id
                for run in (*about, *fits)
                if upkeep.is_current(self._state, self._state.runs[run.run_id])
            )
            if chosen and context.user is not None:
                self._require_share(context, context.user, runs=len(chosen))

            def start() -> None:
                for run_id in chosen:
                    self._execution.request(run_id)

            answer = RetriedTask(task=task, retried=chosen)
            return Decision(answer, partial(self._registry.retry, chosen), start)

        return self._once(context, "retry", {"task": task}, RetriedTask, decide)

    def cancel(self, context: RequestContext, task: str, keep: bool = False) -> CancelledTask:
        def decide() -> Decision[CancelledTask]:
            self._own_task(context, task)
            chosen = tuple(run.run_id for run in self._registry.runs(states=OWED, tasks=[task]))
            leaves = not keep and not self._state.tasks[task].head
            answer = CancelledTask(task=task, cancelled=chosen, left=leaves)
            if not leaves:
                return self._cancelled(context, answer, chosen)
            uses = self._using(task)
            unspent = upkeep.unspent(self._state, uses)
            removal = task, CANCELLED, uses, (), ()
            write = partial(self._registry.remove, *removal, unspent=unspent)
            return Decision(answer, write, partial(self._withdraw, Removed(task, uses)))

        parts = {"task": task} | ({"keep": "yes"} if keep else {})
        return self._once(context, "cancel", parts, CancelledTask, decide)

    def remove(self, context: RequestContext, task: str, purge: bool) -> RemovedTask:
        def decide() -> Decision[RemovedTask]:
            self._require_removable(context, task, purge)
            uses = self._using(task, purge)
            met = self._registry.that_met(task) if purge else ()
            anew = [run_id for run_id in met if run_id not in uses]
            users = tuple(self._registry.users_of(task))
            gone = self._registry.references_of(task) if purge else ()
            how = "purged" if purge else "removed"

            def withdraw() -> None:
                self._withdraw(Removed(task, uses, tuple(anew)))
                if purge:
                    self._erasing.owed = True
                    self._execution.answers_with(self._execution.heads.without_task(task))

            answer = RemovedTask(task=task, purged=purge, users=users, withdrawn=uses)
            by, unspent = context.user or "an admin", upkeep.unspent(self._state, uses)
            removal = task, how, uses, anew, gone
            write = partial(self._registry.remove, *removal, by=by, unspent=unspent)
            return Decision(answer, write, withdraw)

        parts = {"task": task, "purge": purge}
        return self._once(context, "remove", parts, RemovedTask, decide)

    def refresh(self, context: RequestContext, task: str) -> QueuedRun:
        def decide() -> Decision[QueuedRun]:
            self._pins.pins([Term(1.0, task)], self._visibility(context))
            owed = self._registry.runs(states=OWED, tasks=[task], kinds=("refresh",))
            due = self._registry, self._base, upkeep.refresh_of(self._state, task)
            work = owed[0].work if owed else work_orders.refreshing(*due)
            who = context.user or ""
            return self._queued(work.run_id, partial(self._registry.add_run, work, task, user=who))

        return self._once(context, "refresh", {"task": task}, QueuedRun, decide)

    def task(self, context: RequestContext, name: str) -> TaskDetail:
        with self._reading():
            return self._view(context).detail(self._entry(context, name))

    def _using(self, task: str, purge: bool = False) -> tuple[str, ...]:
        """The runs that end with the task. If it is purged, also those on users' models that have
        it or answer with heads that saw it: there may be hundreds, so their work is not read."""
        left, runs = (*OWED, *STOPPED), self._registry.runs
        using = runs(left, kinds=NAMING, naming=task)
        if purge:
            using += self._registry.stopped_with(task)
        found = [one.run_id for one in using if work_orders.uses(one.work, task, purge)]
        fits = runs(left, kinds=("fit",))
        found += [fit.run_id for fit in fits if self._is_fit_of(fit.run_id, task)]
        if purge:
            saw, owed = self._execution.heads.with_task(task), self._execution.owed()
            found += [run.run_id for run in owed if task in run.model or saw.hold_any(run.model)]
        return tuple(dict.fromkeys(found))

    def _is_fit_of(self, run_id: str, task: str) -> bool:
        return upkeep.concerns(self._state, self._state.runs[run_id], task)

    def _withdraw(self, removed: Removed) -> None:
        self._has_now(removed.task, None)
        self._execution.apply_events(removed)

    def _arrived(self, shard: Shard, submission: Submission) -> None:
        self._has_now(shard.task, shard)
        known = planned_task(shard, submission)
        self._execution.apply_events(SamplesArrived(shard.task, known, submission.private))

    def _require_new(self, context: RequestContext, submission: Submission) -> None:
        """Raises SameData if a task that the requester sees has the same rows."""
        if submission.rows:
            same = self._registry.with_rows(submission.rows)
            seen = [name for name in same if self._visibility(context).sees(name)]
            if seen:
                raise SameData(
                    f"the task {seen[0]} has exactly these rows; use it, or submit them once more "
                    "with --again (Python and HTTP: again)"
                )

    def _require_removable(self, context: RequestContext, task: str, purge: bool) -> None:
        """Raises UnknownTask. A task that was removed may still be purged."""
        purgeable = purge and self._registry.removed(task) == "removed"
        if not (purgeable and self._visibility(context).sees(task)):
            self._seen_task(context, task)


def _is_about(run: RunRecord, task: str) -> bool:
    """Whether a run is about the task. The work of a refresh, which names others too, is not read:
    there may be dozens."""
    return run.task == task or (run.kind == "measure" and task in tasks_of(run.work))
