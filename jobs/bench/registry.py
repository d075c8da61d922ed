"""What people and learners wait for when a home is large: `tacl bench registry`.

A real coordinator over a real registry and real files, in this process: Ray adds its own round
trip, about a millisecond. Nothing is trained: a launcher that starts nothing stands in.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cluster.coordinator import Coordinator
from cluster.launcher import Outcome
from cluster.messages import ANY, Shard, Work
from cluster.samples import store_shard, training_inputs
from cluster.state import Needs, Node
from jobs.bench.population import FULL, TENTH, Population, Say, Size
from tacl.penalties import other_tasks
from tacl.splits import batch_rows

SIZES = {"tenth": TENTH, "full": FULL}
PENALTY_ROWS = 16  # of a batch of 128
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

    def poll(self, handle: str) -> Outcome | None:
        return None

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
    goal: float | None

    @property
    def met(self) -> bool:
        return self.goal is None or self.p99 <= self.goal


def bench(sizes: list[str], rounds: int, registry: str | None, say: Say) -> Iterator[Times]:
    """Each size, as soon as it was measured. `registry` is the URL of an empty one; default SQLite
    beside the blobs."""
    for name in sizes:
        with tempfile.TemporaryDirectory(prefix="tacl-bench-") as folder:
            population = Population(Path(folder) / "home", SIZES[name], registry)
            population.fill(lambda line, name=name: say(f"{name}: {line}"))
            say(f"{name}: measuring")
            yield from measured(population, name, rounds)


def measured(population: Population, size: str, rounds: int) -> Iterator[Times]:
    made: list[Coordinator] = []
    for what, act, count in acts(population, made, rounds):
        yield times(what, size, act, count)
    made[-1].close()


Act = Callable[[int], object]


def acts(
    population: Population, made: list[Coordinator], rounds: int
) -> Iterator[tuple[str, Act, int]]:
    """(what, how, how often), in an order in which none disturbs the next."""
    size, chosen = population.size, np.random.default_rng(0)
    tasks = [population.shards[row].task for row in chosen.integers(0, size.tasks, rounds)]
    users = [population.user(row) for row in chosen.integers(0, size.compositions, rounds)]

    def restart(_: int) -> None:
        if made:
            made.pop().close()
            gc.collect()
        made.append(Coordinator(population.home.path, Idle()))

    yield "restart", restart, 3
    coordinator = made[-1]
    yield "composition lookup", lambda row: coordinator.composition(users[row]), rounds
    yield "alias lookup", lambda row: coordinator.aliases(tasks[row]), rounds
    versions = chosen.integers(1, size.versions + 1, rounds)

    def move(name: str) -> Act:
        return lambda row: coordinator.move_alias(
            tasks[row], name, int(versions[row]), ANY, f"move {name} {row}"
        )

    def compose(row: int) -> None:
        terms = [f"+{tasks[(row + term) % rounds]}" for term in range(5)]
        terms = list(dict.fromkeys(terms))
        coordinator.compose(users[row], terms, f"compose again {row}")

    yield "alias move", move("stable"), rounds
    yield "compose", compose, rounds
    yield from penalty_acts(population, rounds)
    yield "champion move", move("champion"), rounds // 10
    yield "submit", submitting(population, coordinator), max(1, rounds // 20)


def submitting(population: Population, coordinator: Coordinator) -> Act:
    blob = store_shard(population.blobs, ["one", "other"], [False, True])
    return lambda row: coordinator.submit(population.submission(f"new{row}", blob))


def penalty_acts(population: Population, rounds: int) -> Iterator[tuple[str, Act, int]]:
    """A run of a home with so many tasks: what it is told, whose turn it is, and its rows."""
    for known in KNOWN:
        size = Size(known, 1, 1, population.size.rows)
        small = Population(population.home.path / f"of {known} tasks", size)
        small.fill(lambda line: None)
        coordinator = Coordinator(small.home.path, Idle())
        blob = small.shards[0].blob
        run_id = coordinator.submit(small.submission("new", blob)).run_id
        inputs = {
            shard.blob.digest: training_inputs(small.blobs, shard.blob)
            for shard in (small.generic, *small.shards)
        }

        def batch(step: int) -> list[Any]:
            told = coordinator.known(run_id, step)  # noqa: B023 - called before the next
            (other,) = other_tasks("cyclical", step, told)
            return rows_of(other, inputs, step)  # noqa: B023

        batch(0)  # tells of everybody, once
        yield f"penalty batch, {known} tasks", lambda row, batch=batch: batch(row + 1), rounds
        coordinator.close()


def rows_of(shard: Shard, inputs: dict[str, list[Any]], step: int) -> list[Any]:
    own = inputs[shard.blob.digest]
    return [own[row] for row in batch_rows(len(own), PENALTY_ROWS, 0, step)]


def times(what: str, size: str, act: Act, count: int) -> Times:
    taken = []
    for row in range(count):
        start = time.perf_counter()
        act(row)
        taken.append(1000 * (time.perf_counter() - start))
    worst = float(np.quantile(taken, 0.99, method="higher"))
    return Times(what, size, count, statistics.median(taken), worst, GOALS.get(what))


def table(found: list[Times]) -> list[list[str]]:
    """Rows of text for people: what, how often, and of each size median and p99 in ms."""
    by_what: dict[str, dict[str, Times]] = {}
    for one in found:
        by_what.setdefault(one.what, {})[one.size] = one
    rows = []
    for what, by_size in by_what.items():
        goal = GOALS.get(what)
        cells = [f"{t.median:.2f} / {t.p99:.2f}" for t in by_size.values()]
        rows.append([what, "" if goal is None else f"{goal:g}", *cells])
    return rows
