"""What the arrival of a task costs the coordinator, and how much the registry writes."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from cluster.coordinator.core import Coordinator
from cluster.domain.tasks import Pair, Shard, VectorRef
from cluster.domain.work import Measured, MeasureWork, Trained
from cluster.scheduler.upkeep import COLUMN
from cluster.storage.samples import store_shard
from jobs.benchmarks.calls import NOBODY
from jobs.benchmarks.fleet import IdleLauncher
from jobs.benchmarks.population import Population, Say, Size, made_up

ARRIVALS = 5
MET = 8  # tasks on whose probe rows a new vector is measured at once


@dataclass(frozen=True)
class ArrivalCost:
    """CPU milliseconds, and bytes written to files: for the vector with its row of the matrix, and
    for its column, under as many older vectors as are measured at once."""

    cpu_ms: float
    written: int


def arrival(population: Population, coordinator: Coordinator) -> ArrivalCost:
    """The cost of one more task of this home. A median of several, as the database now and then
    moves what it has written."""
    found = [_arrival(population, coordinator, number) for number in range(ARRIVALS)]
    spent, written = (statistics.median(one) for one in zip(*found, strict=True))
    return ArrivalCost(spent, int(written))


def in_small_homes(counts: Iterable[int], say: Say) -> dict[int, ArrivalCost]:
    """The cost of one more task in homes of these numbers of tasks, by number."""
    found = dict[int, ArrivalCost]()
    for tasks in counts:
        say(f"an arrival at {tasks} tasks")
        with tempfile.TemporaryDirectory(prefix="tacl-bench-") as folder:
            size = Size(tasks, versions=10, compositions=100 * tasks, rows=16, private=0)
            population = made_up(Path(folder) / "home", size)
            coordinator = Coordinator(population.home.path, IdleLauncher())
            found[tasks] = arrival(population, coordinator)
            coordinator.close()
    return found


def _arrival(population: Population, coordinator: Coordinator, number: int) -> tuple[float, int]:
    registry, process = coordinator._registry, psutil.Process()
    blob = store_shard(population.home.blobs(), ["a sample", "another"], [False, True])
    run_id = coordinator.submit(NOBODY, population.newcomer(f"arriving{number}", blob)).run_id
    shards, last = population.shards[-MET:], len(population.tasks[0].vectors)
    before, busy = process.io_counters().write_chars, time.thread_time()
    row = tuple(_pair(None, shard) for shard in (population.generic, *shards))
    reference = registry.publish(run_id, _trained(row))
    (own,) = registry.shards(reference.task)
    older = [population.reference(shard.ordinal, last) for shard in population.shards[:COLUMN]]
    asked = tuple((vector, own) for vector in older)
    measuring = f"measure arriving{number}"
    work = MeasureWork(run_id=measuring, base=population.base, pairs=asked, attempt=1)
    registry.add_run(work, None)
    registry.finish(work.run_id, Measured(pairs=tuple(_pair(one, own) for one, own in asked)))
    spent = 1000 * (time.thread_time() - busy)
    return spent, process.io_counters().write_chars - before


def _trained(row: tuple[Pair, ...]) -> Trained:
    return Trained(
        vector_digest="a vector",
        vector_blob="its blob",
        head_blob="its head",
        config={"steps": 300},
        metrics={"validation_accuracy": 0.875},
        curves={"loss": 300 * [0.125]},
        norm=1.0,
        pairs=row,
    )


def _pair(vector: VectorRef | None, shard: Shard) -> Pair:
    """`vector`: None for one that has no version yet."""
    return Pair(
        task=vector.task if vector else "",
        version=vector.version if vector else 0,
        vector_digest=vector.digest if vector else "",
        on=shard.task,
        shard_digest=shard.blob.digest,
        tau_jp=0.01,
        standard_error=0.001,
        rows=64,
        head=shard.head,
        logits=0.01 if shard.head else None,
        logits_error=0.001 if shard.head else None,
    )
