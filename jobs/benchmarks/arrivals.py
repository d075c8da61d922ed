"""What the arrival of a task costs, beside its training, when there are so many already.

Decisions are those of the real plan; the work is simulated: every older vector disturbs the
newcomer, and a refresh ends that. Costs are in trainings of one task (`cluster.scheduler.budget`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from cluster.domain.tasks import GENERIC, Options
from cluster.scheduler.budget import CELL, allowance
from cluster.scheduler.plan import handle
from cluster.scheduler.queue import needs_of, urgency_of
from cluster.scheduler.state import (
    Cell,
    Effect,
    Event,
    Instruction,
    Measure,
    Measured,
    Node,
    Published,
    Refresh,
    Requested,
    SamplesArrived,
    State,
    Task,
    Vector,
)

TASKS = (4, 8, 14, 100, 1000)
ARRIVALS = 8  # of which the mean is told
ROWS = 6400  # of a task: its training has 200 steps
OPTIONS = Options(heads="trained")


@dataclass(frozen=True)
class Arrival:
    """Of one task among `tasks`: pairs measured and vectors refreshed, what both cost in trainings,
    and CPU seconds that the plan thought about it; `most`: the longest about one event."""

    tasks: int
    measured: float
    refreshed: float
    cost: float
    seconds: float
    most: float


def bench_arrivals(counts: Sequence[int] = TASKS) -> list[Arrival]:
    return [_mean(count) for count in counts]


def _mean(count: int) -> Arrival:
    cluster = _Cluster(count)
    for number in range(count, count + ARRIVALS):
        cluster.arrive(f"t{number}", number + 1)
    measures = [one for one in cluster.said if isinstance(one, Measure)]
    refreshes = [one for one in cluster.said if isinstance(one, Refresh)]
    training = 2 * allowance(ROWS, OPTIONS)
    cost = sum(one.cost for one in (*measures, *refreshes)) / training
    cells = sum(one.cost for one in measures) // CELL
    each = [n / ARRIVALS for n in (cells, len(refreshes), cost, sum(cluster.seconds))]
    return Arrival(count, *each, most=max(cluster.seconds))


class _Cluster:
    """Tasks that have met each other, and the simulated work of those that arrive."""

    def __init__(self, count: int) -> None:
        self.state = State("base", nodes=(Node(4),))
        self.state.tasks[GENERIC] = Task(0, Options(refresh="never"), "shard of generic")
        self.seconds: list[float] = []
        self.said: list[Instruction] = []
        names = [f"t{number}" for number in range(count)]
        shards = frozenset(f"shard of {name}" for name in names)
        for number, name in enumerate(names):
            self.state.tasks[name] = Task(number + 1, OPTIONS, f"shard of {name}", head="head")
            self.state.champions[name] = Vector(1, f"{name} v1", shards)
            quiet = {other: Effect(0.05, 0.05) for other in (*names[-8:], GENERIC)}
            self.state.rows[name] = quiet | {name: Effect(1.0, 1.0)}

    def arrive(self, name: str, ordinal: int) -> None:
        allowed, shard = allowance(ROWS, OPTIONS), f"shard of {name}"
        self._happens(SamplesArrived(name, ordinal, OPTIONS, shard, allowance=allowed))
        needs, run_id = needs_of("train", OPTIONS), f"train {name}"
        self._happens(Requested(run_id, "train", name, needs, urgency_of("train")))
        seen = frozenset(task.shard for task in self.state.tasks.values())
        self._publish(run_id, name, Vector(1, f"{name} v1", seen))
        while running := [run for run in self.state.runs.values() if run.state == "running"]:
            run = running[0]
            if run.kind == "measure":
                self._happens(
                    Measured(run.run_id, {cell: self._effect(cell) for cell in run.cells})
                )
            elif run.task is not None:
                old = self.state.champions[run.task]
                seen = old.seen | {self.state.tasks[other].shard for other in run.others}
                version = old.version + 1
                new = Vector(version, f"{run.task} v{version}", seen)
                self._publish(run.run_id, run.task, new)

    def _effect(self, cell: Cell) -> Effect:
        met = cell.task == cell.on or cell.shard in self.state.champions[cell.task].seen
        size = 1.0 if cell.task == cell.on else 0.05 if met else 0.5
        return Effect(size, size)

    def _publish(self, run_id: str, task: str, vector: Vector) -> None:
        row = {(task, self.state.tasks[task].shard, "head"): Effect(1.0, 1.0)}
        self._happens(Published(run_id, task, vector, row, "head"))

    def _happens(self, event: Event) -> None:
        begun = time.thread_time()
        self.said += handle(self.state, event)
        self.seconds.append(time.thread_time() - begun)
