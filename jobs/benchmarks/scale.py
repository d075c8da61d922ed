"""Whether the control plane stays flat: `tacl bench scale`.

A real coordinator over a real registry and real files in this process, at two sizes: every call of
a user, a learner and the page in CPU time and bytes (`calls.py`), starts, and how long the lock is
held. Nothing is trained: a launcher that starts nothing stands in. `registry.py` is a view of it.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import numpy as np
import psutil

from cluster.coordinator.core import Coordinator
from cluster.coordinator.lock import Lock
from cluster.runtime.heap import Heap
from jobs.benchmarks.calls import Arrival, Call, Cost, arrival, calls, cost
from jobs.benchmarks.fits import Fitting, Step, steps
from jobs.benchmarks.fleet import CORE, STEP_MS, Fleet
from jobs.benchmarks.population import BEFORE, Population, Say, Size, made_up
from jobs.benchmarks.stream import Upkeep
from jobs.benchmarks.timing import machine
from jobs.console.documents import markdown_table

SIZES = {
    "100": Size(tasks=100, versions=10, compositions=10_000, rows=16, private=5),
    "1,000": Size(tasks=1000, versions=10, compositions=100_000, rows=16, private=5),
    "10,000": Size(tasks=10_000, versions=10, compositions=1_000_000, rows=16, told=50, private=5),
}
CPU_MS, BYTES, FLAT, LOCK_MS, TRAININGS = 20.0, 64_000, 1.5, 50.0, 0.5
START_S = dict(zip(SIZES, (5.0, 5.0, 15.0), strict=True))
HELD_MS = (1.0, 5.0, 10.0, 20.0, 50.0, 200.0, 1000.0)  # bounds of the histogram
RARE = ("submit", "the first lease", "purge")  # what a tenth of the rounds is enough for
STARTS = 3


class Hold(NamedTuple):
    """One time under the lock: CPU milliseconds, of which method."""

    milliseconds: float
    method: str


class Held(Lock):
    """Notes for how much of the processor's time it is held."""

    def __init__(self) -> None:
        super().__init__()
        self._depth, self._since, self._method = 0, 0.0, ""
        self.times = list[Hold]()

    def __enter__(self) -> None:
        super().__enter__()
        if self._depth == 0:
            self._method = _public(sys._getframe(1))
            self._since = time.thread_time()
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.times.append(Hold(1000 * (time.thread_time() - self._since), self._method))
        super().__exit__(*error)


def _public(frame: FrameType) -> str:
    """The method that somebody called, of whatever it is made of."""
    while frame.f_code.co_name.startswith("_") and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_name


@dataclass(frozen=True)
class Measured:
    """A home of one size."""

    size: Size
    start: Cost
    memory: int  # bytes of the coordinator
    held: Sequence[Hold]  # each time under the lock
    calls: Sequence[Cost]
    arrival: Arrival
    fits: Sequence[Step]


@dataclass(frozen=True)
class Goal:
    """What is aimed at, and what was measured."""

    what: str
    goal: float
    measured: float
    missed: bool


@dataclass(frozen=True)
class Scale:
    machine: str
    rounds: int
    homes: dict[str, Measured]  # by the name of their size, the smaller first
    fleets: Sequence[Fleet] = ()  # the smallest first
    upkeep: Sequence[Upkeep] = ()  # by the number of tasks

    def goals(self) -> list[Goal]:
        return [Goal(what, goal, got, got > goal) for what, goal, got in self._goals()]

    def _goals(self) -> Iterator[tuple[str, float, float]]:
        for size, one in self.homes.items():
            yield f"start at {size} tasks, CPU seconds", START_S[size], one.start.cpu.p99 / 1000
        for size, one in self.homes.items():
            longest = max(one.held)
            what = f"longest time under the lock at {size} tasks, in `{longest.method}`, CPU ms"
            yield what, LOCK_MS, longest.milliseconds
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
            yield f"coordinator of {one.learners:,} learners, of one core", CORE, one.core
            yield f"wait of {one.learners:,} learners, ms at p99", STEP_MS, one.wait_p99

    def by_call(self) -> Iterator[tuple[Cost, ...]]:
        """Of every call, its cost at each size."""
        return zip(*(one.calls for one in self.homes.values()), strict=True)


def bench_scale(
    sizes: Mapping[str, Size],
    rounds: int,
    say: Say,
    url: str | None = None,
    only: Collection[str] = (),
    beside: Callable[[Population], Iterator[Call]] = lambda population: iter(()),
) -> Scale:
    """`url` of an empty registry for each size, default SQLite; `only` some of the calls, default
    all; `beside` them others."""
    found: dict[str, Measured] = {}
    for name, size in sizes.items():
        with tempfile.TemporaryDirectory(prefix="tacl-bench-") as folder:
            population = made_up(Path(folder) / "home", size, url)
            population.fill(lambda line, name=name: say(f"{name}: {line}"))
            say(f"{name}: asking")
            others = [cost(call, rounds) for call in beside(population)]
            found[name] = _measured(population, size, rounds, only, others)
    return Scale(machine(), rounds, found)


def _measured(
    population: Population, size: Size, rounds: int, only: Collection[str], others: list[Cost]
) -> Measured:
    home = population.home.path
    start = cost(Call("", "start", lambda _: Coordinator(home, Fitting()).close()), STARTS)
    before = _resident()
    coordinator = Coordinator(home, launcher := Fitting())
    memory = _resident() - before
    heap = Heap()  # as its actor does
    coordinator._lock = coordinator._execution._lock = coordinator._erasing._lock = held = Held()
    costs = list[Cost]()
    for call in calls(population, coordinator, rounds):
        if not only or call.what in only:
            costs.append(cost(call, max(1, rounds // 10) if call.what in RARE else rounds))
            coordinator.version()  # as each tick does: takes in what these calls changed
    fits = [] if only else steps(population, coordinator, launcher, held.times)
    arrived = arrival(population, coordinator)
    coordinator.close()
    heap.release()
    return Measured(size, start, memory, held.times, [*others, *costs], arrived, fits)


def _resident() -> int:
    """Bytes of this process, without what was given back to `malloc` and kept there."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return psutil.Process().memory_info().rss


HEAD = """# Whether the control plane stays flat

`tacl bench scale{options}` on {machine}.

{sizes}

A real coordinator over SQLite, in one process; Ray adds its round trip. CPU times, which other work
on the machine changes least, of {rounds} calls each (`submit`, `purge` and the first lease of a
training, which tells a page of tasks: a tenth; `lease`: of one that has heard of all): median /
99th percentile, and bytes of the answer as JSON at the 99th percentile. Goals: at most
{CPU_MS:g} ms and {BYTES:,} bytes, the median of the larger home at most {FLAT:g} times that of the
smaller. Vectors are measured on as many tasks, and refreshed against as many, as the plan has them.

![CPU times and lock](scale.png)

"""


def markdown(found: Scale, options: str = "") -> str:
    """The file of `results`."""
    homes = found.homes
    sizes = "\n".join(f"- {name}: {_described(one.size)}" for name, one in homes.items())
    about = {"machine": found.machine, "rounds": found.rounds, "sizes": sizes, "options": options}
    head = HEAD.format(**about, CPU_MS=CPU_MS, BYTES=BYTES, FLAT=FLAT)
    columns = ["who", "call", *(f"{name} tasks" for name in homes), "larger / smaller"]
    goals = [one for one in found.goals() if one.missed]
    missed = [f"- {one.what}: {one.measured:,.4g}; goal {one.goal:,g}" for one in goals]
    calls = [_call(costs) for costs in found.by_call()]
    parts = [head + markdown_table(columns, calls, "---:"), "", "## A start, and the lock", ""]
    for name, one in homes.items():
        usual, slowest = (milliseconds / 1000 for milliseconds in one.start.cpu)
        parts.append(f"- {STARTS} starts at {name} tasks: {usual:.2f} CPU s, at most {slowest:.2f}")
    for name, one in homes.items():
        mib = round(one.memory / 2**20)
        parts.append(f"- memory of the coordinator at {name} tasks: {mib} MiB")
    for name, one in homes.items():
        came = f"{one.arrival.written:,} bytes, {one.arrival.cpu_ms:.1f} CPU ms"
        parts.append(f"- an arrival at {name} tasks, its vector, row and column: writes {came}")
    for name, one in homes.items():
        longest = max(one.held)
        held = f"{longest.milliseconds:.1f} CPU ms, in `{longest.method}`"
        parts.append(f"- the longest time under the lock at {name} tasks: {held}")
    parts += ["", markdown_table(["held for, CPU ms", *homes], histogram(found), "---:"), ""]
    parts += _fits(list(homes.values())) if all(one.fits for one in homes.values()) else []
    parts += _upkeep(found.upkeep) if found.upkeep else []
    parts += _fleets(found.fleets) if found.fleets else []
    parts += ["## Missed", "", *(missed or ["Nothing."]), ""]
    return "\n".join(parts)


FITS = """## Heads that are fitted again

Of {each} earlier fits, and of one for each of {private} owners of private tasks beside the newest
for everybody; the longest time under the lock at once / the processor's time in all, ms.
"""


def _fits(homes: Sequence[Measured]) -> list[str]:
    rows = (
        [some[0].what, *(f"{one.held_ms:.1f} / {one.cpu_ms:,.1f}" for one in some)]
        for some in zip(*(one.fits for one in homes), strict=True)
    )
    columns = ["what", *(f"{one.size.tasks:,} tasks" for one in homes)]
    about = FITS.format(each=len(BEFORE), private=homes[-1].size.private)
    return [about, markdown_table(columns, rows, "---:"), ""]


UPKEEP = """## What an arrival causes

By the real plan, whose work is made up (`jobs/benchmarks/stream.py`): on average of the last
arrivals of so many, pairs of vector and task that are measured, refreshes, what both cost in
trainings of the newcomer (goal: at most {TRAININGS:g}), and the processor time of the plan, in all
and of the longest event (goal: {LOCK_MS:g} ms, it holds the lock).
"""


def _upkeep(found: Sequence[Upkeep]) -> list[str]:
    columns = ["tasks", "pairs measured", "refreshes", "trainings", "CPU ms of the plan", "longest"]
    rows = (
        [
            f"{one.tasks:,}",
            f"{one.pairs:.1f}",
            f"{one.refreshes:.1f}",
            f"{one.trainings:.2f}",
            f"{one.cpu_ms:.1f}",
            f"{one.longest_ms:.1f}",
        ]
        for one in found
    )
    return [
        UPKEEP.format(TRAININGS=TRAININGS, LOCK_MS=LOCK_MS),
        markdown_table(columns, rows, "---:"),
        "",
    ]


FLEETS = """## Learners that ask

Each does {each:g} optimizer steps a second and asks the one coordinator, an actor, through Ray for
its next lease of them, of as many seconds as the coordinator says to so many. Goals: at most
{CORE:g} of a core, and at the 99th percentile no wait longer than a step, {STEP_MS:g} ms. The share
is what as many learners need that are all answered in time, of the processor time of an answer,
with everything that the coordinator's process does beside.
"""


def _fleets(fleets: Sequence[Fleet]) -> list[str]:
    columns = ["learners", "lease", "answers", "per second", "CPU ms of an answer"]
    columns += ["of one core", "waited"]
    rows = (
        [
            f"{one.learners:,}",
            f"{one.lease:.1f} s",
            f"{one.answers:,}",
            f"{one.answers / one.seconds:.0f}",
            f"{1000 * one.cpu / one.answers:.2f}",
            f"{one.core:.2f}",
            f"{one.wait_p50:.1f} / {one.wait_p99:.0f} ms",
        ]
        for one in fleets
    )
    about = FLEETS.format(each=1000 / STEP_MS, CORE=CORE, STEP_MS=STEP_MS)
    carried = [one.learners for one in fleets if one.core <= CORE and one.wait_p99 <= STEP_MS]
    largest = (
        f"The largest of them within both goals: {max(carried):,} learners."
        if carried
        else ("None of them is within both goals.")
    )
    return [about, markdown_table(columns, rows, "---:"), "", largest, ""]


def _described(size: Size) -> str:
    told = "" if size.told is None else f", trainings before were told of {size.told:,} tasks each"
    return (
        f"{size.tasks:,} tasks, {size.versions} versions of each, "
        f"{size.compositions:,} users with a model{told}"
    )


def _call(costs: Sequence[Cost]) -> list[str]:
    cells = [f"{c.cpu.median:,.2f} / {c.cpu.p99:,.2f}, {c.bytes.p99:,.0f} B" for c in costs]
    first, last = costs[0], costs[-1]
    ratio = f"{last.cpu.median / first.cpu.median:.2f}" if len(costs) > 1 else ""
    return [first.who, first.what, *cells, ratio]


def histogram(found: Scale) -> Iterator[list[str]]:
    """How often the lock was held so long."""
    for low, high in pairwise([0.0, *HELD_MS, float("inf")]):
        said = f"{low:g} to {high:g}" if high < float("inf") else f"over {low:g}"
        counts = [sum(low <= t < high for t, _ in one.held) for one in found.homes.values()]
        yield [said, *(f"{count:,}" for count in counts)]


def picture(found: Scale, path: Path) -> None:
    """The calls by their CPU time, and how long the lock is held."""
    from jobs.console.plots import drawing

    with drawing(path, "", 12, 7, across=2) as axes:
        left, right = axes[0]
        for place, (size, one) in enumerate(found.homes.items()):
            rows = np.arange(len(one.calls)) + 0.4 * place
            left.barh(rows, [call.cpu.p99 for call in one.calls], 0.4, label=f"{size} tasks")
            left.set_yticks(np.arange(len(one.calls)), [call.name for call in one.calls])
            times = np.sort([hold.milliseconds for hold in one.held])
            right.plot(times, 1 - np.arange(len(times)) / len(times), label=f"{size} tasks")
        left.axvline(CPU_MS, color="black", linestyle=":")
        left.set(xscale="log", xlabel="CPU ms, 99th percentile")
        left.invert_yaxis()
        left.legend()
        right.axvline(LOCK_MS, color="black", linestyle=":")
        right.set(xscale="log", yscale="log", xlabel="CPU ms under the lock", ylabel="share longer")
