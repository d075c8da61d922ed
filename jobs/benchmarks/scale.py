"""Whether the cost of the control plane grows with a home: `tacl bench scale`.

A real coordinator over a real registry and real files in this process, at two sizes: CPU time and
bytes of every call of a user, a learner, the page and a server (`every.py`), starts, and how long
the lock is held. Nothing is trained: the launcher starts nothing. `registry.py` reports the same in
wall-clock time.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from cluster.coordinator.core import Coordinator
from cluster.runtime.gc_tuning import GcTuning
from jobs.benchmarks.arriving import ArrivalCost, arrival
from jobs.benchmarks.calls import Call, CallCost, cost
from jobs.benchmarks.every import calls, opened
from jobs.benchmarks.fits import FittingLauncher, Step, steps
from jobs.benchmarks.fleet import CORE, STEP_MS, Fleet
from jobs.benchmarks.held import Held, Hold
from jobs.benchmarks.population import Population, Say, Size, made_up
from jobs.benchmarks.stream import Upkeep
from jobs.benchmarks.timing import machine

SIZES = {
    "100": Size(tasks=100, versions=10, compositions=10_000, rows=16, private=5),
    "1,000": Size(tasks=1000, versions=10, compositions=100_000, rows=16, private=5),
    "10,000": Size(tasks=10_000, versions=10, compositions=1_000_000, rows=16, told=50, private=5),
}
CPU_MS, BYTES, FLAT, LOCK_MS, TRAININGS = 20.0, 64_000, 1.5, 50.0, 0.5
START_S = dict(zip(SIZES, (5.0, 5.0, 15.0), strict=True))
STARTS = 3


@dataclass(frozen=True)
class MeasuredHome:
    """Measurements of a home of one size."""

    size: Size
    start: CallCost
    opened: CallCost  # the registry, by the process of a server
    memory: int  # bytes of the coordinator
    held: Sequence[Hold]  # each time under the lock
    calls: Sequence[CallCost]
    arrival: ArrivalCost
    fits: Sequence[Step]

    @property
    def longest(self) -> tuple[Hold, Hold]:
        """The longest times under the lock: by CPU time, and by wall clock."""
        return max(self.held), max(self.held, key=lambda hold: hold.clock)


@dataclass(frozen=True)
class CheckedGoal:
    """A goal, and what was measured."""

    what: str
    goal: float
    measured: float
    missed: bool


@dataclass(frozen=True)
class Scale:
    machine: str
    rounds: int
    homes: dict[str, MeasuredHome]  # by the name of their size, the smaller first
    fleets: Sequence[Fleet] = ()  # the smallest first
    upkeep: Sequence[Upkeep] = ()  # by the number of tasks
    few: Mapping[int, ArrivalCost] = field(default_factory=dict)  # in homes of fewer tasks

    @property
    def arrivals(self) -> dict[int, ArrivalCost]:
        """Costs by the number of existing tasks."""
        return {**self.few, **{one.size.tasks: one.arrival for one in self.homes.values()}}

    def goals(self) -> list[CheckedGoal]:
        return [CheckedGoal(what, goal, got, got > goal) for what, goal, got in self._goals()]

    def _goals(self) -> Iterator[tuple[str, float, float]]:
        for size, one in self.homes.items():
            yield f"start at {size} tasks, CPU seconds", START_S[size], one.start.cpu.p99 / 1000
        for size, one in self.homes.items():
            what = f"a server's process opens the registry at {size} tasks, CPU seconds"
            yield what, START_S[size], one.opened.cpu.p99 / 1000
        for size, one in self.homes.items():
            longest, slowest = one.longest
            what = f"longest time under the lock at {size} tasks"
            yield f"{what}, in `{longest.method}`, CPU ms", LOCK_MS, longest.cpu
            yield f"{what}, in `{slowest.method}`, ms by the clock", LOCK_MS, slowest.clock
        for size, one in self.homes.items():
            for call in one.calls:
                at = f"{call.name}, at {size} tasks"
                yield f"{at}, CPU ms at p99", CPU_MS, call.cpu.p99
                yield f"{at}, bytes at p99", BYTES, call.bytes.p99
        if len(self.homes) > 1:
            for smaller, *_, larger in self.by_call():
                grown = larger.cpu.median / smaller.cpu.median
                yield f"{smaller.name}, larger / smaller, of the medians", FLAT, grown
            first, *_, last = (one.arrival.written for one in self.homes.values())
            yield "bytes that an arrival writes, larger / smaller", FLAT, last / first
        for one in self.upkeep:
            what = f"upkeep of an arrival at {one.tasks:,} tasks, trainings"
            yield what, TRAININGS, round(one.trainings, 2)
            what = f"longest event of the plan at {one.tasks:,} tasks, CPU ms"
            yield what, LOCK_MS, one.longest_ms
        for one in self.fleets:
            if one.beyond:
                continue
            yield f"coordinator of {one.learners:,} learners, of one core", CORE, one.core
            yield f"wait of {one.learners:,} learners, ms at p99", STEP_MS, one.wait_p99

    def by_call(self) -> Iterator[tuple[CallCost, ...]]:
        """The costs of every call at each size."""
        return zip(*(one.calls for one in self.homes.values()), strict=True)


def bench_scale(
    sizes: Mapping[str, Size],
    rounds: int,
    say: Say,
    url: str | None = None,
    only: Collection[str] = (),
    beside: Callable[[Population], Iterator[Call]] = lambda population: iter(()),
) -> Scale:
    """`url`: of an empty registry for each size, default SQLite; `only`: some of the calls, default
    all; `beside`: additional calls."""
    found: dict[str, MeasuredHome] = {}
    for name, size in sizes.items():
        with tempfile.TemporaryDirectory(prefix="tacl-bench-") as folder:
            told = lambda line, name=name: say(f"{name}: {line}")  # noqa: E731
            population = made_up(Path(folder) / "home", size, told, url)
            told("asking")
            others = [cost(call, rounds) for call in beside(population)]
            found[name] = _measured(population, size, rounds, only, others)
    return Scale(machine(), rounds, found)


def _measured(
    population: Population, size: Size, rounds: int, only: Collection[str], others: list[CallCost]
) -> MeasuredHome:
    home = population.home.path
    start = cost(Call("", "start", lambda _: Coordinator(home, FittingLauncher()).close()), STARTS)
    opening = Call("server", "open the registry", lambda _: opened(population.home).close())
    opens = cost(opening, STARTS)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
        memory = fresh.submit(memory_of, home).result()
    coordinator = Coordinator(home, launcher := FittingLauncher())
    heap = GcTuning()  # as in its actor
    coordinator._lock = coordinator._execution._lock = coordinator._erasing._lock = held = Held()
    costs = list[CallCost]()
    for call in calls(population, coordinator, rounds):
        if not only or call.what in only:
            costs.append(cost(call, rounds))
            coordinator.version()  # as at each tick: takes in what these calls changed
    fits = [] if only else steps(population, coordinator, launcher, held.times)
    arrived = arrival(population, coordinator)
    coordinator.close()
    heap.release()
    return MeasuredHome(size, start, opens, memory, held.times, [*others, *costs], arrived, fits)


def memory_of(home: Path) -> int:
    """Bytes that a coordinator takes, in a process without one before, whose memory the next would
    reuse."""
    before = _resident()
    coordinator = Coordinator(home, FittingLauncher())
    taken = _resident() - before
    coordinator.close()
    return taken


def _resident() -> int:
    """Bytes of this process, without freed memory that `malloc` still holds."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return psutil.Process().memory_info().rss
