"""What fits of heads are of: their tasks are listed in a blob before they start.

A fit is accepted under the lock, with what follows from it, and its list written without: it may be
of thousands of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cluster.coordinator import work_orders
from cluster.coordinator.lock import Lock
from cluster.domain.status import RunState
from cluster.domain.work import FitWork
from cluster.reading.fits import HeadFit, warm_start
from cluster.registry import Registry
from cluster.scheduler import champion_sets
from cluster.scheduler import state as facts
from cluster.scheduler.upkeep import fits
from cluster.storage.blobs import Blobs


class Lists:
    """All but `write` is asked under the lock. `fits`: those of heads that are kept."""

    def __init__(
        self, registry: Registry, blobs: Blobs, lock: Lock, fits: Callable[[], Sequence[HeadFit]]
    ) -> None:
        self._registry, self._blobs, self._lock, self._fits = registry, blobs, lock, fits
        self._champions: dict[str, facts.Champions] = {}  # of what is not listed yet
        self._written = set[str]()  # ids of fits that can start

    def accepted(self, fit: facts.FitHeads) -> None:
        self._champions[fit.run_id] = fit.champions
        self._written.discard(fit.run_id)

    def awaits(self, state: facts.State, one: facts.Instruction) -> bool:
        """Whether it starts a fit of which it is not known that its tasks are listed."""
        run = state.runs.get(one.run_id) if isinstance(one, facts.Start) else None
        is_fit = run is not None and run.kind == "fit" and run.state == RunState.RUNNING
        return is_fit and one.run_id not in self._written

    def forget(self, run_id: str) -> None:
        """It was started, or is wanted no more."""
        self._champions.pop(run_id, None)
        self._written.discard(run_id)

    def write(self, state: facts.State, run_id: str) -> bool:
        """Unless it is there: of a fit that stopped it may have been collected. False where nobody
        knows any more what the fit was of: champions moved since, and its list is not there."""
        work = self._registry.run(run_id).work
        assert isinstance(work, FitWork)
        if not (work.listed.digest and self._blobs.exists(work.listed.digest)):
            with self._lock:
                champions = self._champions.get(run_id)
                if champions is None and run_id in fits(state):
                    champions = champion_sets.champions(state, work.owner)
                known = self._fits()
            if champions is None:
                return False
            earlier = warm_start(known, work.owner, champions)
            work = work_orders.listed(self._registry, self._blobs, work, champions, earlier)
            with self._lock:
                self._registry.listed(work)
        self._written.add(run_id)
        return True
