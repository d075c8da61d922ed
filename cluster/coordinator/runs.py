"""Requests from runs, and requests of people about a run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import dropwhile, islice

from cluster.coordinator.arrivals import ShardChange, is_met
from cluster.coordinator.handler import RequestHandler
from cluster.coordinator.underway import LeaseCursor, LeaseState
from cluster.domain.base import PAGE, RequestContext
from cluster.domain.outcomes import Lost
from cluster.domain.status import RunStatus
from cluster.domain.tasks import Shard
from cluster.domain.visibility import Visibility
from cluster.domain.work import Lease, Leave, Progress
from cluster.scheduler import upkeep
from tacl.errors import RunFailed


class RunRequests(RequestHandler):
    """Methods of `cluster.domain.api.RunAPI`, and requests of people about a run."""

    def lease(self, asked: Lease) -> Leave:
        with self._reading():
            told = self._execution.underway.lease_state(asked.run_id, asked.attempt)
            if asked.since > told.arrivals.reached:  # a database lost it, the learner lives on
                raise Lost(
                    f"the registry has no lease of run {asked.run_id} up to step {asked.since}"
                )
            if told.arrivals.is_replayed(asked.last):
                change, heard = ShardChange(asked.first), told.heard
            else:
                tasks, heard = self._pending_changes(told)
                change = self._change(told, asked.first, tasks)
            with self._writing():
                joins = change.step, change.newcomers, change.left
                self._registry.grant_lease(asked.run_id, asked.last, asked.progress, *joins)
            before = max(told.arrivals.reached, asked.first - 1)
            self._steps += max(0, asked.last - before)  # a lease of several pages counts once
            told.arrivals.record(change, asked.last)
            told.heard = heard
            if asked.progress is not None:
                self._stepped(asked.run_id, told.own, asked.progress)
            seconds = self._leases.seconds(self._execution.underway.trainings, time.process_time())
            return Leave(told.arrivals.after(asked.since), seconds, self._gives_way(asked.run_id))

    def _gives_way(self, run_id: str) -> bool:
        run = self._state.runs.get(run_id)
        return run is not None and run.gives_way

    def _pending_changes(self, told: LeaseState) -> tuple[list[str], LeaseCursor]:
        """About a page of tasks whose present samples the run may not know, and its cursor once it
        is told of them."""
        if told.heard is None:
            seen = told.arrivals.tasks
            there = (self._shards[task] for task in seen & self._shards.keys())
            gone = seen - {one.task for one in there if self._meets(told, one)}
            changes, after = len(self._changed), -1
        else:
            gone, (changes, after) = set[str](), told.heard
        changed = self._changed[changes : changes + PAGE]
        later, reached = self._news(told, after, PAGE - len(changed))
        return [*dict.fromkeys([*gone, *changed, *later])], LeaseCursor(
            changes + len(changed), reached
        )

    def _news(self, told: LeaseState, after: int, most: int) -> tuple[list[str], int]:
        """The tasks after ordinal `after` that are news to a run, at most `most`; and the ordinal
        up to which tasks were checked."""
        found = list[str]()
        for one in self._later(after):
            if len(found) == most:
                break
            after = one.ordinal
            if told.arrivals.is_news(one) and self._meets(told, one):
                found.append(one.task)
        return found, after

    def _later(self, after: int) -> Iterator[Shard]:
        """Samples of the tasks that arrived after this one. `_shards` is in order of arrival: of
        earlier tasks, only as many are read as tasks have left."""
        there, last = self._shards.values(), next(reversed(self._shards.values()), None)
        left = 1 + last.ordinal - len(there) if last else 0
        near = islice(there, max(0, after + 1 - left), None)
        return dropwhile(lambda one: one.ordinal <= after, near)

    def _change(self, told: LeaseState, first: int, tasks: Sequence[str]) -> ShardChange:
        """What a lease from step `first` brings of the samples of these tasks."""
        now = (self._behind_head(name) for name in tasks if name in self._shards)
        return told.arrivals.change(first, [one for one in now if self._meets(told, one)], tasks)

    def _meets(self, told: LeaseState, shard: Shard) -> bool:
        visibility = Visibility(told.owner, self._state.owners)
        return is_met(shard, told.own, visibility, not upkeep.shares(self._state, shard.task))

    def is_current(self, run_id: str, attempt: int) -> bool:
        with self._lock:
            return self._registry.is_running(run_id, attempt)

    def report_progress(self, run_id: str, progress: Progress, attempt: int) -> bool:
        with self._lock:
            if not self._registry.report_progress(run_id, attempt, progress):
                raise RunFailed(f"attempt {attempt} of run {run_id} is not the one that runs now")
            run = self._state.runs.get(run_id)
            self._stepped(run_id, run and run.task, progress)
            return self._gives_way(run_id)

    def _stepped(self, run_id: str, task: str | None, progress: Progress) -> None:
        self._board.report_progress(run_id, task, progress)
        if progress.step is not None and progress.steps is not None:
            self._execution.forecast.stepped(run_id, progress.step, progress.steps, time.time())

    def publish_statistics(self, run_id: str, statistics: str, attempt: int | None = None) -> None:
        with self._reading():
            shard = self._shards[self._execution.underway.lease_state(run_id, attempt).own]
            if (first := shard.statistics) == statistics:
                return
            if first is not None and self._blobs.exists(first):  # others were told of it
                return self._registry.owe_refused([statistics])
            self._blobs.verify(statistics)
            shard = shard.model_copy(update={"statistics": statistics})
            with self._writing():
                self._registry.state(shard)
            self._has_now(shard.task, shard)

    def run(self, context: RequestContext, run_id: str) -> RunStatus:
        with self._reading():
            view = self._view(context)
            return view.run(view.seen_run(run_id))
