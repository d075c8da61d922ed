"""The coordinator's part about runs: what they ask and tell."""

from __future__ import annotations

from typing import TypeVar

from cluster.coordinator import views, work_orders
from cluster.coordinator.arrivals import known
from cluster.coordinator.quotas import Quotas
from cluster.domain.base import RequestContext
from cluster.domain.status import OWED, RunState, RunStatus
from cluster.domain.tasks import Shard
from cluster.domain.visibility import Visibility
from cluster.domain.work import Evaluated, Progress, Refreshed
from cluster.registry import Run
from cluster.scheduler import plan
from tacl.errors import RunFailed

R = TypeVar("R", Evaluated, Refreshed)


class Runs(Quotas):
    """`cluster.domain.api.RunAPI`, and what people ask of a run."""

    def known(
        self, run_id: str, step: int, progress: Progress | None = None, attempt: int | None = None
    ) -> tuple[Shard, ...]:
        with self._lock:
            self._make_sure()
            told = self._execution.told(run_id, attempt)
            shards = self._behind_heads().values()
            visibility = Visibility(told.owner, self._state.owners)
            withheld = {name for name in self._state.tasks if not plan.shares(self._state, name)}
            current = known(shards, told.own, visibility, withheld)
            newcomers = told.arrivals.newcomers(step, current)
            left = told.arrivals.leavers(step, current)
            with self._writing():
                self._registry.told(run_id, step, newcomers, progress, left)
            told.arrivals.record(step, newcomers, left)
            self._steps += 1
            return told.arrivals.at(step)

    def progressed(self, run_id: str, progress: Progress, attempt: int) -> None:
        with self._lock:
            if not self._registry.progressed(run_id, attempt, progress):
                raise RunFailed(f"attempt {attempt} of run {run_id} is not the one that runs now")

    def stated(self, run_id: str, statistics: str, attempt: int | None = None) -> None:
        with self._lock:
            self._make_sure()
            shard = self._shards[self._execution.told(run_id, attempt).own]
            if shard.statistics != statistics:
                self._blobs.verify(statistics)
                shard = shard.model_copy(update={"statistics": statistics})
                self._registry.state(shard)
                self._shards[shard.task] = shard

    def run(self, context: RequestContext, run_id: str) -> RunStatus:
        with self._lock:
            record, visibility = self._seen_run(context, run_id), self._visibility(context)
            return views.run(record, self._state, visibility)

    def refreshed(self, context: RequestContext, run_id: str) -> Refreshed | None:
        return self._result(context, run_id, "refresh", Refreshed)

    def _result(self, context: RequestContext, run_id: str, kind: str, form: type[R]) -> R | None:
        """Of a run of this kind, None while it is owed. Raises RunFailed with the cause."""
        with self._lock:
            run = self._seen_run(context, run_id)
            if run.state not in (*OWED, RunState.DONE):
                raise RunFailed(f"{views.about(run.work)} {run.state}: {run.cause}")
            if run.kind != kind:
                raise RunFailed(f"a {kind} was asked for, and run {run_id} is a {run.kind}")
            return self._registry.result(run_id, form)

    def _seen_run(self, context: RequestContext, run_id: str) -> Run:
        """Raises RunFailed when there is none that the asker sees."""
        run = self._registry.run(run_id)
        if not self._visibility(context).sees_all(work_orders.tasks_of(run.work)):
            raise RunFailed(f"there is no run {run_id}")
        return run
