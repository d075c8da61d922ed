"""What people and learners wait for when a home is large: `tacl bench registry`.

A real coordinator over a real registry and real files, in this process: Ray adds its own round
trip, about a millisecond. Nothing is trained: a launcher that starts nothing stands in.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.coordinator.arrivals import Arrivals
from cluster.coordinator.core import Coordinator
from cluster.domain.outcomes import Outcome
from cluster.domain.tasks import Shard
from cluster.domain.work import Lease, Work
from cluster.scheduler.adoption import Attempt
from cluster.scheduler.state import Needs, Node
from cluster.storage.samples import training_inputs
from jobs.benchmarks.calls import NOBODY, Ask, Call, calls, cost
from jobs.benchmarks.markdown import machine
from jobs.benchmarks.markdown import table as markdown_table
from jobs.benchmarks.population import FULL, TENTH, Population, Say, Size, made_up
from tacl.data.splits import batch_rows
from tacl.training.penalties import other_tasks

SIZES = {"tenth": TENTH, "full": FULL}
PENALTY_ROWS = 16  # of a batch of 128
CALLS = {  # those of `calls.py`
    "composition": "composition lookup",
    "aliases": "alias lookup",
    "move an alias": "alias move",
    "compose": "compose",
    "submit": "submit",
    "move the champion": "champion move",
}
KNOWN = (4, 64)  # tasks that a run knows
GOALS = {  # milliseconds at the 99th percentile
    "composition lookup": 5.0,
    "alias lookup": 5.0,
    "alias move": 5.0,
    "champion move": 5.0,
    "restart": 10_000.0,
    **{f"penalty batch, {known} tasks": 2.0 for known in KNOWN},
}


class Idle:
    """Has room for everything and starts nothing."""

    def nodes(self) -> tuple[Node, ...]:
        return (Node(1_000_000),)

    def free(self) -> tuple[Node, ...]:
        return ()

    def start(self, work: Work, needs: Needs) -> str:
        return work.run_id

    def learners(self) -> tuple[Attempt, ...]:
        return ()

    def end(self, attempt: Attempt) -> None:
        pass

    def poll(self, handle: str) -> Outcome | None:
        return None

    def let_go(self, handle: str) -> None:
        pass

    def cancel(self, handle: str) -> None:
        pass


@dataclass(frozen=True)
class Times:
    """Milliseconds."""

    what: str
    size: str
    count: int
    median: float
    p99: float
    cpu_p99: float  # of the processor's time: what other work on the machine does not change
    goal: float | None  # for p99


@dataclass(frozen=True)
class Found:
    """All times, and what they are of."""

    machine: str
    registry: str
    sizes: dict[str, Size]
    times: list[Times]


def bench_registry(sizes: list[str], rounds: int, registry: str | None, say: Say) -> Found:
    """`registry` is the URL of an empty one for each size; default SQLite."""
    found: list[Times] = []
    for name in sizes:
        with tempfile.TemporaryDirectory(prefix="tacl-bench-") as folder:
            population = made_up(Path(folder) / "home", SIZES[name], registry)
            population.fill(lambda line, name=name: say(f"{name}: {line}"))
            for times in measured(population, name, rounds):
                say(f"{name}: {times.what}: {times.median:.2f} ms, p99 {times.p99:.2f} ms")
                found.append(times)
    kind = (registry or "sqlite").partition(":")[0]
    return Found(machine(), kind, {name: SIZES[name] for name in sizes}, found)


def measured(population: Population, size: str, rounds: int) -> Iterator[Times]:
    for what, ask, count in asks(population, rounds):
        one, goal = cost(Call("", what, ask), count), GOALS.get(what)
        yield Times(what, size, count, one.clock.median, one.clock.p99, one.cpu.p99, goal)


def asks(population: Population, rounds: int) -> Iterator[tuple[str, Ask, int]]:
    """(what, how, how often), in an order in which none disturbs the next."""
    home = population.home.path
    yield "restart", lambda _: Coordinator(home, Idle()).close(), 3
    yield "the disk alone: 32 kB, synced", syncing(home / "synced"), rounds
    yield from penalty_batches(population, rounds)
    coordinator = Coordinator(home, Idle())
    for call in calls(population, coordinator, rounds):
        if call.what in CALLS:
            few = call.what == "submit"
            yield CALLS[call.what], call.ask, max(1, rounds // 20) if few else rounds
    coordinator.close()


def syncing(path: Path) -> Ask:
    """What a commit cannot be faster than."""

    def act(_: int) -> None:
        with path.open("ab", buffering=0) as file:
            file.write(bytes(32 << 10))
            os.fsync(file.fileno())

    return act


def penalty_batches(population: Population, rounds: int) -> Iterator[tuple[str, Ask, int]]:
    """A run of a home with so many tasks: what it is told, whose turn it is, and its rows."""
    for known in KNOWN:
        size = Size(known, 1, 1, population.shards[0].blob.rows)
        small = made_up(population.home.path / f"of {known} tasks", size)
        small.fill(lambda line: None)
        coordinator = Coordinator(small.home.path, Idle())
        blob = small.shards[0].blob
        run_id = coordinator.submit(NOBODY, small.newcomer("new", blob)).run_id
        inputs = {
            shard.blob.digest: training_inputs(small.home.blobs(), shard.blob)
            for shard in (small.generic, *small.shards)
        }

        arrivals = Arrivals()

        def batch(step: int) -> list[Any]:  # at worst: a lease of one step
            asked = Lease(run_id=run_id, first=step, last=step, since=step - 1)  # noqa: B023
            arrivals.hear(coordinator.lease(asked))  # noqa: B023 - called
            (other,) = other_tasks("cyclical", step, arrivals.at(step))  # noqa: B023 - before the
            return rows_of(other, inputs, step)  # noqa: B023 - next

        batch(0)  # tells of everybody, once
        yield f"penalty batch, {known} tasks", lambda row, batch=batch: batch(row + 1), rounds
        coordinator.close()


def rows_of(shard: Shard, inputs: dict[str, list[Any]], step: int) -> list[Any]:
    own = inputs[shard.blob.digest]
    return [own[row] for row in batch_rows(len(own), PENALTY_ROWS, 0, step)]


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


def markdown(found: Found, options: str = "") -> str:
    """The file of `results`."""
    sizes = "\n".join(
        f"- {name}: {one.tasks:,} tasks, {one.tasks * one.versions:,} vector versions, "
        f"{one.compositions:,} compositions, {one.tasks * one.rows:,} samples"
        for name, one in found.sizes.items()
    )
    head = HEAD.format(sizes=sizes, options=options, machine=found.machine, registry=found.registry)
    return head + markdown_table(["", "goal", *found.sizes], table(found), "---:") + "\n"


def table(found: Found) -> list[list[str]]:
    """What, its goal, and the times for each size."""
    rows: dict[str, list[str]] = {}
    for one in found.times:  # size by size
        goal = "" if one.goal is None else f"{one.goal:,.0f}"
        row = rows.setdefault(one.what, [one.what, goal])
        row.append(f"{one.median:,.2f} / {one.p99:,.2f} ({one.cpu_p99:,.2f})")
    return list(rows.values())
