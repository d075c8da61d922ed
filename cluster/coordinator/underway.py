"""Work that is under way: its learners, what each training was told, and the outcomes of work that
ended."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Generic, NamedTuple

from cluster import failpoints
from cluster.coordinator.acceptance import checked
from cluster.coordinator.arrivals import Arrivals
from cluster.coordinator.launcher import H, Launcher
from cluster.coordinator.lock import Lock
from cluster.coordinator.retries import Retries
from cluster.domain.outcomes import Finished, Outcome
from cluster.domain.work import TrainWork, Work
from cluster.registry import Registry
from cluster.scheduler.state import Needs
from cluster.storage.blobs import Blobs
from tacl.errors import RunFailed


class LeaseCursor(NamedTuple):
    """What a run has heard since this process began: the first `changes` changes of samples, and
    all tasks up to `ordinal`, by arrival."""

    changes: int
    ordinal: int


class LeaseState:
    """What a running training was told, its own task and that task's owner."""

    def __init__(self, work: TrainWork, arrivals: Arrivals) -> None:
        self.attempt = work.attempt
        self.own, self.owner = work.submission.name, work.submission.owner
        self.restart(arrivals)

    def restart(self, arrivals: Arrivals) -> None:
        """Start from what the registry has: the next leases check the samples of all tasks."""
        self.arrivals = arrivals
        self.heard: LeaseCursor | None = None


class Underway(Generic[H]):
    """All methods are called under the lock but `poll` and `poll_again`: those by `tick` alone."""

    def __init__(
        self, registry: Registry, launcher: Launcher[H], blobs: Blobs, lock: Lock, retries: Retries
    ) -> None:
        self._registry, self._launcher, self._blobs = registry, launcher, blobs
        self._lock, self._retries = lock, retries
        self._handles: dict[str, H] = {}
        self._outcomes: dict[str, tuple[H, Outcome]] = {}  # not in the registry yet
        self._told: dict[str, LeaseState] = {}

    @property
    def run_ids(self) -> frozenset[str]:
        return frozenset(self._handles)

    @property
    def trainings(self) -> int:
        """The number of trainings that run."""
        return len(self._told)

    def lease_state(self, run_id: str, attempt: int | None) -> LeaseState:
        """What a training was told. Raises RunFailed unless `attempt` is the one that runs."""
        told = self._told.get(run_id)
        if told is None or attempt not in (None, told.attempt):
            raise RunFailed(f"attempt {attempt} of run {run_id} is not the one that runs now")
        return told

    def place(self, work: Work, needs: Needs) -> None:
        if isinstance(work, TrainWork):
            self._told[work.run_id] = LeaseState(work, self._arrivals(work.run_id))
        self._handles[work.run_id] = self._launcher.start(work, needs)

    def reread(self, run_ids: Iterable[str]) -> None:
        """Read again from the registry what these runs were told."""
        for run_id in self._told.keys() & {*run_ids}:
            self._told[run_id].restart(self._arrivals(run_id))

    def poll(self) -> None:
        """Check which learners have ended, without the lock: a big vector takes a while."""
        with self._lock:
            running = {i: h for i, h in self._handles.items() if i not in self._outcomes}
        ended: Collection[str] = running  # each by itself, if they cannot be polled together

        def together() -> None:
            nonlocal ended
            ended = self._launcher.ended(running)

        if running:
            self._retries.try_now(("polling all learners", next(iter(running))), together)
        for run_id in ended:
            look = partial(self._look, run_id, running[run_id])
            self._retries.try_now(("polling the learner", run_id), look)

    def ended(self) -> Iterator[tuple[str, Outcome]]:
        """The outcomes to record. Runs that were stopped are dropped, also while this iterates."""
        for run_id, (handle, outcome) in list(self._outcomes.items()):
            if self._handles.get(run_id) is handle:
                yield run_id, outcome
            else:
                del self._outcomes[run_id]

    def poll_again(self) -> None:
        """Poll again what is not recorded yet: a file that it names may have been deleted since."""
        self._outcomes.clear()

    def leave(self, run_id: str) -> None:
        """Let go of a run whose end is recorded; not before, as only its learner has its result."""
        handle, (_, outcome) = self._handles[run_id], self._outcomes[run_id]
        leave = self._launcher.let_go if isinstance(outcome, Finished) else self._launcher.cancel
        leave(handle)
        del self._handles[run_id], self._outcomes[run_id]
        self._told.pop(run_id, None)

    def stop(self, run_id: str) -> LeaseState | None:
        """Stop a run; harmless if it does not run. If its learner cannot be ended now, it gets no
        more leases. Returns what a training was told, for the caller to free: it may be of
        thousands of tasks."""
        told = self._told.pop(run_id, None)
        if run_id in self._handles:
            self._launcher.cancel(self._handles[run_id])
            del self._handles[run_id]
            failpoints.reached("work stopped")
        return told

    def close(self) -> None:
        """Stop all of it."""
        for handle in self._handles.values():
            self._launcher.cancel(handle)
        self._handles.clear()

    def _look(self, run_id: str, handle: H) -> None:
        outcome = self._launcher.poll(handle)
        if isinstance(outcome, Finished):
            outcome = checked(self._registry.run(run_id).work, outcome, self._blobs)
        if isinstance(outcome, Finished):
            _ = outcome.written  # computed now, and not under the lock
        if outcome is not None:
            self._outcomes[run_id] = handle, outcome

    def _arrivals(self, run_id: str) -> Arrivals:
        """What the run was told before: it is told the same again."""
        reached = self._registry.run(run_id).reached
        return Arrivals(reached, self._registry.arrivals(run_id))
