"""Starts work as the plan decides, watches it, and records its outcome.

The order is always: blobs are in the blob store, then one transaction of the registry, then the
event to the plan, then its instructions. Every step can be repeated from the registry, so what
cannot be done now, as when the disk is full, is tried again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Set
from functools import partial
from typing import Any

from cluster import failpoints, tracing
from cluster.coordinator import work_orders
from cluster.coordinator.launcher import Launcher
from cluster.coordinator.lists import Lists
from cluster.coordinator.lock import Lock
from cluster.coordinator.recording import recorded
from cluster.coordinator.recovery import keep, past_durations, planned, restored
from cluster.coordinator.retries import LONGEST, Retries
from cluster.coordinator.underway import Underway
from cluster.domain.base import Base
from cluster.domain.compositions import Fitted
from cluster.domain.outcomes import Finished, GaveWay, Outcome, Raised
from cluster.domain.status import OWED, STOPPED, RunState
from cluster.reading.heads import FittedHeads
from cluster.reading.shares import over_quota
from cluster.registry import Registry
from cluster.scheduler import plan
from cluster.scheduler import state as facts
from cluster.scheduler.adoption import Attempt, inherited
from cluster.scheduler.finishing import Forecast, ends
from cluster.storage.checkpoints import checkpoints, runs
from cluster.storage.home import Home

SHARES = 10.0  # seconds between checks of the minutes that users took
LOG = logging.getLogger(__name__)


def _named(attempt: Attempt) -> dict[str, object]:
    """The fields of an attempt for the log."""
    return {"run_id": attempt.run_id, "attempt": attempt.number}


class Execution:
    """Carries out what `plan` decides.

    Its constructor is the recovery: it reads the registry, takes over the learners that are
    running, and issues the work still owed. `lock` guards what callers and `tick` share: they run
    in different threads.
    """

    def __init__(
        self, home: Home, base: Base, registry: Registry, launcher: Launcher[Any], lock: Lock
    ) -> None:
        self._home, self._base, self._registry, self._launcher = home, base, registry, launcher
        self._blobs = home.blobs()
        self._lock = lock
        self._retries = Retries()
        self.underway = Underway(registry, launcher, self._blobs, lock, self._retries)
        self._due: list[facts.Instruction] = []
        self._lists = Lists(registry, self._blobs, lock, lambda: self.heads.fits)
        self._cleared: dict[str, None] = {}  # runs whose checkpoints are to be deleted
        self.forecast, self._foreseen = Forecast(), 0.0
        self._unchecked = True  # whether something happened since the plan was validated
        # Whether the plan may differ from what follows from the registry: then the registry is
        # read again before anything is decided, recorded or carried out.
        self.unsure = False
        self._said: str | None = None  # the last error, until a tick succeeds
        self._said_at = -LONGEST  # when it was logged
        self._shared_at = -SHARES  # when users' minutes were checked
        self._let_go: list[object] = []  # may have thousands of tasks: the next tick frees it
        self.state = self._taken_over()
        for run, seconds in past_durations(registry):
            self.forecast.took(self.state, run, seconds)
        self.heads = FittedHeads.of_all(registry, self.state.owners)
        self._forget_checkpoints()
        # Before anything is decided: a run that no node can hold must not keep others waiting.
        self.state.nodes, self.state.free = launcher.nodes(), launcher.free()
        self._refresh_minutes()
        self.apply_events(facts.NodesChanged(self.state.nodes, self.state.free))

    def apply_events(self, *events: facts.Event) -> None:
        """Tell the plan facts that the registry holds, and carry out what follows. If the registry
        is to be read again, nothing is done: reading it brings these facts too."""
        if self.unsure:
            return
        self._unchecked = self.unsure = True  # stays so if an event is only half in the plan
        for event in events:
            self._due.extend(plan.handle(self.state, event))
        self.unsure = False
        self._execute_due()

    def request(self, run_id: str, user: str | None = None) -> None:
        """Tell the plan of a run in the registry; a failed one is queued again. `user`: the
        requester, if others may have requested the same run before."""
        run = self._registry.run(run_id)
        if run.state in STOPPED:
            self._registry.retry([run_id])
        if run.state != RunState.DONE:
            known = planned(run)
            about = run_id, run.kind, run.task, known.needs, known.urgency
            user = run.user if user is None else user
            self.apply_events(facts.Requested(*about, user, known.model))

    def tick(self) -> None:
        """Take in what ended and what the cluster has now, and carry out what is due."""
        self._let_go.clear()
        try:
            self.underway.poll()
            with self._lock:
                self._refresh_minutes()
            self._refresh_nodes()
            with self._lock:
                settled = [self._settled(*ended) for ended in self.underway.ended()]
            if any(settled):  # what waits may have their room before the next tick
                self._refresh_nodes()
            self._clear()
            self._list()
            with self._lock:
                if not self.unsure:
                    self._execute_due()
                    if self._unchecked:
                        plan.validate(self.state)
                self._unchecked, self._said = False, None
        except Exception as error:
            self.log_error(error)

    @property
    def trouble(self) -> str | None:
        """What cannot be done now and is tried again."""
        due = (instruction.run_id for instruction in self._due)
        return self._said or self._retries.trouble({*due, *self.underway.run_ids, *self._cleared})

    def owed(self) -> Iterator[facts.PlannedRun]:
        """The runs of the plan, and those that it gave up whose failure is not recorded yet: until
        then the registry says that they are owed, and keeps the files that they name."""
        yield from self.state.runs.values()
        failed = [one.run_id for one in self._due if isinstance(one, facts.Fail)]
        yield from map(planned, self._registry.runs(OWED, run_ids=failed) if failed else ())

    def foreseen(self) -> facts.State:
        """The plan with the expected ends of its runs, at most a second old."""
        if (now := time.time()) - self._foreseen > 1.0:
            self.state.ends = ends(
                self.state, partial(self.forecast.left, self.state, now=now), now
            )
            self._foreseen = now
        return self.state

    def reread(self) -> None:
        """Rebuild the plan from the registry, after a commit whose outcome is not known. Runs that
        were cancelled or withdrawn, or that start anew, are stopped before any is started. The room
        is kept as last known: the cluster may be unreachable too."""
        wanted = {run.run_id for run in self._registry.runs(states=(RunState.RUNNING,))}
        running = wanted & self.underway.run_ids
        self._record_gone(wanted - running)
        state = restored(self._registry, self._base.digest, running)
        keep(self.state, state)
        others = {*self.underway.run_ids, *runs(self._home)} - running
        self.underway.reread(running)
        self._due = [facts.Stop(run_id, self._is_forgotten(run_id, state)) for run_id in others]
        self.state, self.heads = state, FittedHeads.of_all(self._registry, state.owners)
        self.unsure = False
        self.apply_events(facts.NodesChanged(state.nodes, state.free))

    def _record_gone(self, run_ids: Set[str]) -> None:
        """Record runs that the registry says are running though no process does them: how each
        ended, if that was waiting to be recorded. The others are queued again."""
        ends = {one.run_id: one for one in self._due if isinstance(one, facts.Requeue | facts.Fail)}
        for run_id in run_ids & ends.keys():
            self._execute(ends[run_id])
        if others := run_ids - ends.keys():
            self._registry.interrupted(others)

    def answers_with(self, heads: FittedHeads) -> None:
        """Use these heads from now on. The next tick frees the former ones, when nobody waits."""
        self._let_go.append(self.heads)
        self.heads = heads

    def forget(self, run_ids: Iterable[str]) -> None:
        """Have the checkpoints of runs deleted, before any of these runs starts again."""
        self._cleared |= dict.fromkeys(run_ids)

    def close(self) -> None:
        """Stop what runs; it stays owed."""
        self.underway.close()

    def _refresh_nodes(self) -> None:
        """Tell the plan if the room of the cluster changed; it is read without the lock."""
        nodes, free = self._launcher.nodes(), self._launcher.free()
        with self._lock:
            if (nodes, free) != (self.state.nodes, self.state.free):
                self.apply_events(facts.NodesChanged(nodes, free))

    def _refresh_minutes(self) -> None:
        """Every SHARES seconds, if several users have runs, check who took their minutes."""
        if (now := time.monotonic()) - self._shared_at < SHARES:
            return
        self._shared_at, runs = now, self.state.runs.values()
        users = {run.user for run in runs if run.state != RunState.FAILED and run.user is not None}
        taken = (
            over_quota(self._registry.run_times_of(users)) if len(users) > 1 else frozenset[str]()
        )
        if taken != self.state.over:
            self.apply_events(facts.MinutesTaken(taken))

    # -- what ended

    def _clear(self) -> None:
        """Delete checkpoints without the lock: in a bucket it takes a while."""
        for run_id in list(self._cleared):
            clear = checkpoints(self._home, run_id).clear
            if self._retries.try_now(("deleting its checkpoints", run_id), clear):
                del self._cleared[run_id]

    def _list(self) -> None:
        """Write the list of tasks of every accepted fit that is about to start."""

        def write(run_id: str) -> None:
            is_listed = self._lists.write(self.state, run_id)
            with self._lock:
                if not is_listed and run_id in self.state.runs:  # not removed with a task
                    self.apply_events(
                        facts.Failed(
                            run_id, "champions changed before its list of tasks was written"
                        )
                    )

        with self._lock:
            new = {one.run_id for one in self._due if isinstance(one, facts.FitHeads)}
            due = [one.run_id for one in self._due if self._lists.is_unlisted_fit(self.state, one)]
        for run_id in (run_id for run_id in due if run_id not in new):
            self._retries.try_now(("listing its tasks", run_id), partial(write, run_id))

    def _settled(self, run_id: str, outcome: Outcome) -> bool:
        """Record how a run ended; returns whether that was done. Nothing is recorded for a run that
        is to be stopped, even if it was requested again: it starts anew once it is stopped."""
        run = self.state.runs.get(run_id)
        if self.unsure or run is None or run.state != RunState.RUNNING:
            return False
        if any(isinstance(one, facts.Stop) and one.run_id == run_id for one in self._due):
            return False
        settle = partial(self._settle, run_id, outcome)
        return self._retries.try_now(("recording its end", run_id), settle)

    def _settle(self, run_id: str, outcome: Outcome) -> None:
        """Write to the registry, then tell the plan; repeated if the registry cannot write."""
        try:
            event = self._event(run_id, outcome)
            self.underway.leave(run_id)
        except Exception:  # it may be recorded: the registry is read before anything is decided
            self.unsure = True  # stays so if that cannot be read
            self._registry.await_commit()
            self.unsure = self._registry.run(run_id).state != RunState.RUNNING
            raise
        if isinstance(outcome, Finished):
            self._cleared[run_id] = None
            self.forecast.ended(self.state, self.state.runs[run_id], time.time())
        self.forecast.forget(run_id)
        self.apply_events(event)

    def _event(self, run_id: str, outcome: Outcome) -> facts.Event:
        """The event that tells the plan of an outcome; a result is recorded first."""
        if isinstance(outcome, Finished):
            with tracing.span("publish", tracing.of_run(run_id)):
                event = self._recorded(run_id, outcome)
            LOG.info("ended", extra=self._facts(run_id))
        elif isinstance(outcome, Raised):
            told = {"cause": outcome.cause, "trace": outcome.trace}
            LOG.error("raised", extra=self._facts(run_id) | told)
            event = facts.Failed(run_id, outcome.cause)
        elif isinstance(outcome, GaveWay):
            event = facts.PlaceGivenBack(run_id)
        else:
            LOG.warning("lost", extra=self._facts(run_id) | {"cause": outcome.cause})
            event = facts.Died(run_id, outcome.cause)
        if not isinstance(event, facts.Died | facts.PlaceGivenBack) and tracing.is_on():
            run = self._registry.run(run_id)
            tracing.record_run(run_id, run.created, kind=run.kind, task=run.task, cause=run.cause)
        return event

    def _recorded(self, run_id: str, outcome: Finished) -> facts.Event:
        event = recorded(self._registry, self.state, run_id, outcome.result, outcome.written)
        if isinstance(outcome.result, Fitted):
            self.heads = self.heads.with_fit(run_id, outcome.result, self.state.owners)
        return event

    # -- what is due

    def _execute_due(self) -> None:
        """Carry out what is due, in order. What fails holds up its own run alone; so do old
        checkpoints that a run must not find, and a list of its tasks that is not stored yet."""
        due, self._due, waiting = self._due, list[facts.Instruction](), set[str]()
        for one in due:
            key, do = ("carrying out an instruction", one.run_id), partial(self._execute, one)
            held = isinstance(one, facts.Start) and one.run_id in self._cleared
            held = held or one.run_id in waiting or self._lists.is_unlisted_fit(self.state, one)
            if held or not self._retries.try_now(key, do):
                self._due.append(one)
                waiting.add(one.run_id)

    def _execute(self, instruction: facts.Instruction) -> None:
        wanted = self.state.runs.get(instruction.run_id)
        if wanted is None and not isinstance(instruction, facts.Stop | facts.Fail):
            return  # its task was removed before this could be done
        match instruction:
            case facts.Requeue() if wanted and wanted.state == RunState.FAILED:
                return  # it was cancelled before this could be recorded
            case facts.Start() if wanted and wanted.state != RunState.RUNNING:
                return  # it was cancelled before it could be started
            case facts.Start(run_id, needs):
                work = self._registry.start(run_id, needs.gpus)
                self.state.runs[run_id].cost = 0
                self._lists.forget(run_id)
                self.underway.place(work, needs)
                self.forecast.begun(run_id, time.time())
                LOG.info("placed", extra=self._facts(run_id) | {"attempt": work.attempt})
                failpoints.reached("work started")
            case facts.Measure(_, cost):
                work = work_orders.measuring(self._registry, self._base, instruction)
                self._registry.add_run(work, None, cost=cost)
            case facts.RefreshChampion(_, cost):
                work = work_orders.refreshing(self._registry, self._base, instruction)
                self._registry.add_run(work, instruction.task, cost=cost)
            case facts.FitHeads():
                self._registry.add_run(work_orders.fitting(self._base, instruction), None)
                self._lists.accepted(instruction)
            case facts.Requeue(run_id, cause, died):
                self._registry.requeue(run_id, cause, died)
                LOG.info("queued again", extra=self._facts(run_id) | {"cause": cause})
            case facts.Fail(run_id, cause):
                kind = self._registry.fail(run_id, cause)  # it may have left the plan
                if wanted and wanted.state != RunState.FAILED:  # requested again meanwhile
                    self._registry.retry([run_id])
                LOG.error("failed", extra=self._facts(run_id) | {"kind": kind, "cause": cause})
            case facts.Stop(run_id, forget):
                LOG.info("stopped", extra=self._facts(run_id))
                self._stop(run_id, forget)

    def _facts(self, run_id: str) -> dict[str, str | None]:
        """The fields of a run for the log."""
        run = self.state.runs.get(run_id)
        task = self.state.tasks.get(run.task) if run and run.task else None
        told = {"run_id": run_id, "kind": run and run.kind, "task": run and run.task}
        return told | {"user": task and task.owner}

    def _stop(self, run_id: str, forget: bool) -> None:
        self._let_go.append(self.underway.stop(run_id))
        self._lists.forget(run_id)
        self.forecast.forget(run_id)
        if forget:
            self._cleared[run_id] = None

    def _taken_over(self) -> facts.State:
        """The state in the registry, with the learners that the previous coordinator left."""
        records = self._registry.runs(states=(RunState.RUNNING,))
        works = {Attempt(one.run_id, one.attempt): one.work for one in records}
        starts = {one.run_id: one.started or 0.0 for one in records}
        found = inherited(works, self._launcher.learners())
        if lost := [one.run_id for one in works.keys() - found.adopted]:
            self._registry.interrupted(lost)
        for orphan in found.orphans:
            self._launcher.end(orphan)
            LOG.info("orphaned learner ended", extra=_named(orphan))
        state = restored(self._registry, self._base.digest, {one.run_id for one in found.adopted})
        for attempt in sorted(found.adopted):
            self.underway.place(works[attempt], state.runs[attempt.run_id].needs)
            self.forecast.begun(attempt.run_id, starts[attempt.run_id])
            LOG.info("goes on", extra=_named(attempt))
        return state

    def log_error(self, error: Exception) -> None:
        """Log the error of a tick when it is new, and then once in LONGEST seconds: each tick tries
        again, and may fail again."""
        said, now = f"{type(error).__name__}: {error}", time.monotonic()
        if said != self._said or now - self._said_at > LONGEST:
            self._said_at = now
            LOG.exception("a tick failed; it is retried")
        self._said = said

    def _forget_checkpoints(self) -> None:
        """Delete checkpoints of runs that ended, or start anew, while no coordinator ran."""
        there = runs(self._home)
        self.forget(run_id for run_id in there if self._is_forgotten(run_id, self.state))
        self._clear()

    def _is_forgotten(self, run_id: str, state: facts.State) -> bool:
        """Whether its checkpoints are of no use: it ended, or starts anew."""
        run = state.runs.get(run_id)  # only of a training is it recorded how far it came
        return run is None or (run.kind == "train" and self._registry.run(run_id).reached < 0)
