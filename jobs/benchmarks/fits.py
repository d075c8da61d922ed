"""The cost of fits of heads for the coordinator of a home, for `tacl bench scale`: a champion is
moved; with each fit that follows, one fit ends and the next is requested and starts. Their results
are made up. A tick does much outside the lock, so the time under the lock is shown beside CPU time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from cluster.coordinator.core import Coordinator
from cluster.domain.base import RequestContext
from cluster.domain.outcomes import Finished, Outcome
from cluster.domain.tasks import ANY
from cluster.domain.work import FitWork, Work
from cluster.scheduler.state import Needs
from cluster.storage.blobs import Blobs
from cluster.storage.listed import listed_tasks
from jobs.benchmarks.calls import NOBODY
from jobs.benchmarks.fleet import IdleLauncher
from jobs.benchmarks.held import Hold
from jobs.benchmarks.population import Population, fitted

MOVES = 2  # of a champion: each is followed by a fit for everybody, and one for each private owner


class Step(NamedTuple):
    """The most that a step of its kind took: CPU ms in one time under the lock, and in all."""

    what: str
    held_ms: float
    cpu_ms: float


class FittingLauncher(IdleLauncher):
    """Starts nothing; a fit has its heads by the next tick."""

    def __init__(self) -> None:
        self.fits: dict[str, FitWork] = {}
        self.blobs: Blobs | None = None  # where the fitted heads are stored

    def start(self, work: Work, needs: Needs) -> str:
        if isinstance(work, FitWork):
            self.fits[work.run_id] = work
        return work.run_id

    def ended(self, handles: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(handles.keys() & self.fits.keys())

    def poll(self, handle: str) -> Outcome | None:
        assert self.blobs is not None
        tasks = listed_tasks(self.blobs, self.fits[handle].listed)
        return Finished(fitted(handle, tasks, self.blobs.put(b"a head")))

    def let_go(self, handle: str) -> None:
        self.fits.pop(handle, None)


def steps(
    population: Population,
    coordinator: Coordinator,
    launcher: FittingLauncher,
    held: Sequence[Hold],
) -> list[Step]:
    """The cost of each kind of step. `held`: grows with each time under the lock."""
    launcher.blobs = population.home.blobs()
    found: dict[str, Step] = {}
    for what, ask in _asked(population, coordinator, launcher):
        one = _step(what, ask, held)
        most = found.get(what, one)
        found[what] = Step(what, max(most.held_ms, one.held_ms), max(most.cpu_ms, one.cpu_ms))
    return list(found.values())


def _asked(
    population: Population, coordinator: Coordinator, launcher: FittingLauncher
) -> Iterator[tuple[str, Callable[[], object]]]:
    version, task = "", population.open[0].task

    def look() -> None:
        nonlocal version
        version = coordinator.status(NOBODY, version).version

    for move in range(MOVES):
        to = 1 + move % len(population.tasks[0].vectors)
        moving = partial(coordinator.move_alias, RequestContext(), task, "champion", to, ANY)
        yield "a champion moves", moving
        yield "a tick after it", coordinator.tick
        while launcher.fits:
            yield "a fit ends, the next begins", coordinator.tick
            yield "status after it", look
    yield "gc", coordinator.collect


def _step(what: str, ask: Callable[[], object], held: Sequence[Hold]) -> Step:
    before, busy = len(held), time.process_time()
    ask()
    cpu_ms = 1000 * (time.process_time() - busy)
    return Step(what, max((one.cpu for one in held[before:]), default=0.0), cpu_ms)
