"""How long people and learners wait when a home is large: `tacl bench registry`.

Wall-clock times of what `scale.py` measures, and two more rows: the disk alone, and the batches of
a penalty.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cluster.coordinator.arrivals import Arrivals
from cluster.coordinator.core import Coordinator
from cluster.domain.work import Lease
from cluster.storage.samples import training_inputs
from jobs.benchmarks.calls import NOBODY, Ask, Call
from jobs.benchmarks.fleet import IdleLauncher
from jobs.benchmarks.population import FULL, TENTH, Population, Size, made_up
from jobs.benchmarks.scale import Scale
from jobs.console.documents import markdown_table
from tacl.data.splits import batch_rows
from tacl.training.penalties import other_tasks

SIZES = {"tenth": TENTH, "full": FULL}
PENALTY_ROWS = 16  # of a batch of 128
KNOWN = (4, 64)  # number of tasks that a run knows


class Row(NamedTuple):
    name: str
    goal: float | None = None  # milliseconds at the 99th percentile


ROWS = {  # by the name of the call in `calls.py`
    "start": Row("restart", 10_000.0),
    "composition": Row("composition lookup", 5.0),
    "aliases": Row("alias lookup", 5.0),
    "move an alias": Row("alias move", 5.0),
    "compose": Row("compose"),
    "submit": Row("submit"),
    "move the champion": Row("champion move", 5.0),
    "the disk": Row("the disk alone: 32 kB, synced"),
    **{f"batch of {known}": Row(f"penalty batch, {known} tasks", 2.0) for known in KNOWN},
}


@dataclass(frozen=True)
class Times:
    """Milliseconds."""

    what: str
    size: str
    median: float
    p99: float
    cpu_p99: float  # of CPU time, which other work on the machine does not change
    goal: float | None  # for p99


def times(found: Scale) -> list[Times]:
    return [
        Times(row.name, size, one.clock.median, one.clock.p99, one.cpu.p99, row.goal)
        for size, home in found.homes.items()
        for one in (home.start, *home.calls)
        for row in [ROWS[one.what]]
    ]


def beside(population: Population) -> Iterator[Call]:
    yield Call("", "the disk", syncing(population.home.path / "synced"))
    for known in KNOWN:
        yield from penalty_batches(population, known)


def syncing(path: Path) -> Ask:
    """A synced write, the least that a commit takes."""

    def act(_: int) -> None:
        with path.open("ab", buffering=0) as file:
            file.write(bytes(32 << 10))
            os.fsync(file.fileno())

    return act


def penalty_batches(population: Population, known: int) -> Iterator[Call]:
    """A run of a home of `known` tasks: its lease, the task that has the turn, and its rows."""
    size = Size(known, 1, 1, population.shards[0].blob.rows)
    small = made_up(population.home.path / f"of {known} tasks", size)
    coordinator, arrivals = Coordinator(small.home.path, IdleLauncher()), Arrivals()
    run_id = coordinator.submit(NOBODY, small.newcomer("new", small.shards[0].blob)).run_id
    shards = [shard.blob for shard in (small.generic, *small.shards)]
    inputs = {shard.digest: training_inputs(small.home.blobs(), shard) for shard in shards}

    def batch(step: int) -> list[Any]:  # the worst case: a lease of one step
        asked = Lease(run_id=run_id, first=step, last=step, since=step - 1)
        arrivals.apply(coordinator.lease(asked).arrivals)
        (other,) = other_tasks("cyclical", step, arrivals.at(step))
        own = inputs[other.blob.digest]
        return [own[row] for row in batch_rows(len(own), PENALTY_ROWS, 0, step)]

    batch(0)  # lists all tasks, once
    yield Call("", f"batch of {known}", lambda row: batch(row + 1))
    coordinator.close()


HEAD = """# What people wait for when a home is large

`tacl bench registry{options}` on {machine}; registry: {registry}.

{sizes}

Milliseconds, median / 99th percentile (of a few starts: the slowest), and in brackets the 99th
percentile of the processor's time, which other work on the machine changes less. All in one
process: Ray adds its round trip of about one millisecond. A penalty batch is: the coordinator says
which tasks a step sees and writes down that the step was reached, the turn is chosen, its rows are
taken. A move waits for the disk once, which by itself takes what the row of the disk says. The move
of a champion also reads what that version has met, a row for each task, and what was measured of
it, and decides what is to be measured and refreshed now.

"""


def markdown(found: Scale, options: str = "", registry: str = "sqlite") -> str:
    """The file in `results`."""
    sizes = "\n".join(
        f"- {name}: {one.tasks:,} tasks, {one.tasks * one.versions:,} vector versions, "
        f"{one.compositions:,} compositions, {one.tasks * one.rows:,} samples"
        for name, one in ((name, home.size) for name, home in found.homes.items())
    )
    rows: dict[str, list[str]] = {}
    for one in times(found):  # in the order of sizes
        goal = "" if one.goal is None else f"{one.goal:,.0f}"
        row = rows.setdefault(one.what, [one.what, goal])
        row.append(f"{one.median:,.2f} / {one.p99:,.2f} ({one.cpu_p99:,.2f})")
    head = HEAD.format(sizes=sizes, options=options, machine=found.machine, registry=registry)
    return head + markdown_table(["", "goal", *found.homes], rows.values(), "---:") + "\n"
