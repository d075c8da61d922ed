"""Finds the fits of heads that nobody needs any more.

Reading every user's model takes a while in a large home, so it is done without the lock; what is
composed meanwhile is checked afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cluster.domain.status import OWED
from cluster.domain.work import EvaluateWork
from cluster.reading.fits import (
    Added,
    HeadFit,
    added_vectors,
    added_vectors_of,
    fits_in_use,
    fits_shown,
)
from cluster.registry import Registry
from cluster.scheduler import upkeep
from cluster.scheduler.state import State


class Outdated:
    """Constructed under the lock; `update` is called without it, and once more under it before the
    `deletable` ones are forgotten."""

    def __init__(self, fits: tuple[HeadFit, ...], state: State) -> None:
        self._fits, self._owners, self._event = fits, dict(state.owners), -1
        self._champions = {task: vector.digest for task, vector in state.champions.items()}
        self._needed: set[str] | None = None

    def update(self, registry: Registry) -> None:
        """Read every user's model and what is to be evaluated; later calls read only what came
        since."""
        if self._needed is None:
            self._needed = fits_shown(self._fits, self._champions)
        since, self._event = self._event, registry.events_after(-1)[0]
        if any(fit.run_id not in self._needed for fit in self._fits):
            self._needed |= fits_in_use(self._fits, _models(registry, since), self._owners)

    def deletable(self, state: State, kept: Iterable[HeadFit]) -> list[str]:
        """Fits that may be deleted: no model, no owed evaluation and no champion uses them, and
        they are not fits of the present champions. Fits that are not in `kept` any more are left
        out: they are forgotten, or saw a purged task, and their files are deleted with it. None
        while a fit is owed: it may start from any of them."""
        if any(run.kind == "fit" and run.state in OWED for run in state.runs.values()):
            return []
        needed = (self._needed or set()) | upkeep.fits(state).keys()
        there = {fit.run_id for fit in kept}
        run_ids = (fit.run_id for fit in self._fits if fit.run_id in there)
        return [run_id for run_id in run_ids if run_id not in needed]


def _models(registry: Registry, since: int) -> Iterator[Added]:
    """What the models of all users add; with `since` >= 0, those composed after that event."""
    runs = None
    if since >= 0:
        runs = {one.run_id for one in registry.events_after(since)[1] if one.run_id}
    for run in registry.runs(states=OWED, kinds=("evaluate",), run_ids=runs):
        if isinstance(run.work, EvaluateWork):
            yield added_vectors(run.work.composition)
    if since >= 0:
        yield from map(added_vectors_of, registry.recipes_since(since))
        return
    digest = ""
    while page := registry.recipes_after(digest):
        yield from map(added_vectors_of, page)
        digest = page[-1].digest
