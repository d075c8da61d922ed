"""Lists of the tasks of fits of heads, each stored in a blob before its fit starts.

A fit is accepted under the lock, with what follows from it. Its list is written without the lock:
it may have thousands of tasks.
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
    """All methods but `write` are called under the lock. `fits` returns the fits that are kept."""

    def __init__(
        self, registry: Registry, blobs: Blobs, lock: Lock, fits: Callable[[], Sequence[HeadFit]]
    ) -> None:
        self._registry, self._blobs, self._lock, self._fits = registry, blobs, lock, fits
        self._champions: dict[str, facts.Champions] = {}  # of fits that are not listed yet
        self._written = set[str]()  # ids of fits that can start

    def accepted(self, fit: facts.FitHeads) -> None:
        self._champions[fit.run_id] = fit.champions
        self._written.discard(fit.run_id)

    def is_unlisted_fit(self, state: facts.State, one: facts.Instruction) -> bool:
        """Whether the instruction starts a fit whose tasks are not known to be listed."""
        run = state.runs.get(one.run_id) if isinstance(one, facts.Start) else None
        is_fit = run is not None and run.kind == "fit" and run.state == RunState.RUNNING
        return is_fit and one.run_id not in self._written

    def forget(self, run_id: str) -> None:
        """Drop a fit that was started or is no longer wanted."""
        self._champions.pop(run_id, None)
        self._written.discard(run_id)

    def write(self, state: facts.State, run_id: str) -> bool:
        """Write the list of a fit unless it is stored; that of a fit that stopped may have been
        collected. False if the champions that the fit was of are not known any more: they moved,
        and its list is gone."""
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
