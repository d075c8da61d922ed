"""What people and learners wait for when a home is large: `tacl bench registry`.

A real coordinator over a real registry and real files, in this process: Ray adds its own round
trip, about a millisecond. Nothing is trained: a launcher that starts nothing stands in.
"""

from __future__ import annotations

import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cluster.coordinator.arrivals import Arrivals
from cluster.coordinator.core import Coordinator
from cluster.domain.base import RequestContext
from cluster.domain.outcomes import Outcome
from cluster.domain.tasks import ANY, Shard
from cluster.domain.work import Lease, Work
from cluster.scheduler.adoption import Attempt
from cluster.scheduler.state import Needs, Node
from cluster.storage.samples import store_shard, training_inputs
from jobs.benchmarks.markdown import machine
from jobs.benchmarks.markdown import table as markdown_table
from jobs.benchmarks.population import FULL, TENTH, Population, Say, Size, made_up
from tacl.data.splits import batch_rows
from tacl.training.penalties import other_tasks

SIZES = {"tenth": TENTH, "full": FULL}
PENALTY_ROWS = 16  # of a batch of 128
NOBODY = RequestContext()
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
        return (Node(64),)

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


Act = Callable[[int], object]


def measured(population: Population, size: str, rounds: int) -> Iterator[Times]:
    made: list[Coordinator] = []
    for what, act, count in acts(population, made, rounds):
        yield times(what, size, act, count)
    made[-1].close()


def acts(
    population: Population, made: list[Coordinator], rounds: int
) -> Iterator[tuple[str, Act, int]]:
    """(what, how, how often), in an order in which none disturbs the next."""
    chosen, versions = np.random.default_rng(0), len(population.tasks[0].vectors)
    tasks = [population.shards[n].task for n in chosen.integers(0, len(population.tasks), rounds)]
    users = [population.user(row) for row in chosen.integers(0, population.models, rounds)]

    def restart(_: int) -> None:
        if made:
            made.pop().close()
            gc.collect()
        made.append(Coordinator(population.home.path, Idle()))

    yield "restart", restart, 3
    coordinator = made[-1]
    yield "composition lookup", lambda row: coordinator.composition(NOBODY, users[row]), rounds
    yield "alias lookup", lambda row: coordinator.aliases(NOBODY, tasks[row]), rounds
    moved = chosen.integers(1, versions + 1, rounds)

    def move(name: str) -> Act:
        return lambda row: coordinator.move_alias(
            RequestContext(request_id=f"move {name} {row}"),
            tasks[row],
            name,
            int(moved[row]),
            ANY,
        )

    def compose(row: int) -> None:
        terms = [f"+{tasks[(row + term) % rounds]}" for term in range(5)]
        terms = list(dict.fromkeys(terms))
        coordinator.compose(RequestContext(request_id=f"compose again {row}"), users[row], terms)

    yield "the disk alone: 32 kB, synced", syncing(population.home.path / "synced"), rounds
    yield "alias move", move("stable"), rounds
    yield "compose", compose, rounds
    yield from penalty_acts(population, rounds)
    yield "champion move", move("champion"), rounds
    yield "submit", submitting(population, coordinator), max(1, rounds // 20)


def syncing(path: Path) -> Act:
    """What a commit cannot be faster than."""

    def act(_: int) -> None:
        with path.open("ab", buffering=0) as file:
            file.write(bytes(32 << 10))
            os.fsync(file.fileno())

    return act


def submitting(population: Population, coordinator: Coordinator) -> Act:
    blob = store_shard(population.home.blobs(), ["one", "other"], [False, True])
    return lambda row: coordinator.submit(NOBODY, population.newcomer(f"new{row}", blob))


def penalty_acts(population: Population, rounds: int) -> Iterator[tuple[str, Act, int]]:
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


def times(what: str, size: str, act: Act, count: int) -> Times:
    taken, worked = [], []
    for row in range(count):
        start, busy = time.perf_counter(), time.process_time()
        act(row)
        taken.append(1000 * (time.perf_counter() - start))
        worked.append(1000 * (time.process_time() - busy))
    worst, cpu = (float(np.quantile(each, 0.99, method="higher")) for each in (taken, worked))
    return Times(what, size, count, statistics.median(taken), worst, cpu, GOALS.get(what))


HEAD = """# What people wait for when a home is large

`tacl bench registry{options}` on {machine}; registry: {registry}.

{sizes}

Milliseconds, median / 99th percentile (of a few starts: the slowest), and in brackets the 99th
percentile of the processor's time, which other work on the machine changes less. All in one
process: Ray adds its round trip of about one millisecond. A penalty batch is: the coordinator says
which tasks a step sees and writes down that the step was reached, the turn is chosen, its rows are
taken. A move waits for the disk once, which by itself takes what the row of the disk says. The move
of a champion also reads what that version has met and what was measured of it, a row for each task,
and decides what is to be measured and refreshed now.

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
