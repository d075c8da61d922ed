"""The coordinator's part about runs: what they ask and tell."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice, takewhile
from typing import TypeVar

from cluster.coordinator import views, work_orders
from cluster.coordinator.arrivals import Change, is_met
from cluster.coordinator.executor import Heard, Told
from cluster.coordinator.quotas import Quotas
from cluster.domain.base import PAGE, RequestContext
from cluster.domain.outcomes import Lost
from cluster.domain.status import OWED, RunState, RunStatus
from cluster.domain.tasks import Shard
from cluster.domain.visibility import Visibility
from cluster.domain.work import Evaluated, Lease, Leave, Progress, Refreshed
from cluster.registry import Run
from cluster.scheduler import upkeep
from cluster.scheduler.leases import lease_seconds
from tacl.errors import RunFailed

R = TypeVar("R", Evaluated, Refreshed)


class Runs(Quotas):
    """`cluster.domain.api.RunAPI`, and what people ask of a run."""

    def lease(self, asked: Lease) -> Leave:
        with self._lock:
            self._make_sure()
            told = self._execution.told(asked.run_id, asked.attempt)
            if asked.since > told.arrivals.reached:  # a database forgot, the learner lives on
                raise Lost(f"nobody remembers what run {asked.run_id} heard of step {asked.since}")
            if told.arrivals.is_replayed(asked.last):
                change, heard = Change(asked.first), told.heard
            else:
                tasks, heard = self._to_hear(told)
                change = self._change(told, asked.first, tasks)
            with self._writing():
                joins = change.step, change.newcomers, change.left
                self._registry.told(asked.run_id, asked.last, asked.progress, *joins)
            told.arrivals.record(change, asked.last)
            told.heard = heard
            if asked.progress is not None:
                self._stepped(asked.run_id, told.own, asked.progress)
            self._steps += asked.last + 1 - asked.first
            seconds = lease_seconds(self._execution.trainings)
            return Leave(told.arrivals.after(asked.since), seconds, self._gives_way(asked.run_id))

    def _gives_way(self, run_id: str) -> bool:
        run = self._state.runs.get(run_id)
        return run is not None and run.gives_way

    def _to_hear(self, told: Told) -> tuple[list[str], Heard]:
        """Tasks whose samples a run may not know as they are now, about a page, and what it has
        heard of then."""
        if told.heard is None:
            seen = told.arrivals.tasks
            there = (self._shards[task] for task in seen & self._shards.keys())
            gone = seen - {one.task for one in there if self._meets(told, one)}
            changes, after = len(self._changed), -1
        else:
            gone, (changes, after) = set[str](), told.heard
        changed = self._changed[changes : changes + PAGE]
        later, reached = self._news(told, after, PAGE - len(changed))
        return [*dict.fromkeys([*gone, *changed, *later])], Heard(changes + len(changed), reached)

    def _news(self, told: Told, after: int, most: int) -> tuple[list[str], int]:
        """Of the tasks that arrived after this one those that are news to a run, and up to which
        one it was looked."""
        newest_first = takewhile(lambda one: one.ordinal > after, reversed(self._shards.values()))
        later = [*newest_first][::-1]
        news = (one for one in later if told.arrivals.is_news(one) and self._meets(told, one))
        found = list(islice(news, most))
        last = found[-1:] if len(found) == most else later[-1:]
        return [one.task for one in found], last[0].ordinal if last else after

    def _change(self, told: Told, first: int, tasks: Sequence[str]) -> Change:
        """What a lease from step `first` brings of the samples of these tasks."""
        now = (self._behind_head(name) for name in tasks if name in self._shards)
        return told.arrivals.change(first, [one for one in now if self._meets(told, one)], tasks)

    def _meets(self, told: Told, shard: Shard) -> bool:
        visibility = Visibility(told.owner, self._state.owners)
        return is_met(shard, told.own, visibility, not upkeep.shares(self._state, shard.task))

    def awaits(self, run_id: str, attempt: int) -> bool:
        with self._lock:
            return self._registry.is_running(run_id, attempt)

    def progressed(self, run_id: str, progress: Progress, attempt: int) -> bool:
        with self._lock:
            if not self._registry.progressed(run_id, attempt, progress):
                raise RunFailed(f"attempt {attempt} of run {run_id} is not the one that runs now")
            run = self._state.runs.get(run_id)
            self._stepped(run_id, run and run.task, progress)
            return self._gives_way(run_id)

    def _stepped(self, run_id: str, task: str | None, progress: Progress) -> None:
        self._board.progressed(run_id, task, progress)
        self._execution.pace.stepped(run_id, progress.step, progress.steps, time.time())

    def stated(self, run_id: str, statistics: str, attempt: int | None = None) -> None:
        with self._lock:
            self._make_sure()
            shard = self._shards[self._execution.told(run_id, attempt).own]
            if shard.statistics != statistics:
                self._blobs.verify(statistics)
                shard = shard.model_copy(update={"statistics": statistics})
                self._registry.state(shard)
                self._has_now(shard.task, shard)

    def run(self, context: RequestContext, run_id: str) -> RunStatus:
        with self._lock:
            return self._sight(context).run(self._seen_run(context, run_id))

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
        if not work_orders.is_seen(run.work, self._visibility(context)):
            raise RunFailed(f"there is no run {run_id}")
        return run
