"""What an arrival causes in a cluster, for `tacl bench scale`: the plan is the real one, its work
is made up. The effects of a vector on inputs of others are drawn, and a refreshed vector has no
effect any more on those that it met.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from cluster.domain.tasks import GENERIC, Options
from cluster.runtime.gc_tuning import GcTuning
from cluster.scheduler import state as facts
from cluster.scheduler.budget import allowance
from cluster.scheduler.matrix import restore
from cluster.scheduler.plan import handle
from cluster.scheduler.queue import needs_of, urgency_of
from cluster.scheduler.state import Effect, Measure, RefreshChampion, Start, State, VectorVersion
from cluster.scheduler.upkeep import COLUMN, RECENT
from jobs.benchmarks.arriving import MET

AT = 4, 8, 14, 100, 1000, 10_000  # tasks
LAST = 4  # arrivals that are counted
ROWS = 3000  # training rows of each task
OPTIONS = Options()
PRIVATE = 5  # of many tasks: each has an owner, for whom heads are fitted too
MEDIAN, SPREAD = 0.1, 1.0  # of the effects of vectors on others; spread of the logarithm


@dataclass
class Upkeep:
    """Averages for an arrival. `trainings`: its cost, in trainings of the new task; `cpu_ms`: of
    the plan; `longest_ms`: of the longest of its events."""

    tasks: int
    pairs: float = 0.0
    refreshes: float = 0.0
    trainings: float = 0.0
    cpu_ms: float = 0.0
    longest_ms: float = 0.0


class Stream:
    """The state of a plan, and the runs in progress."""

    def __init__(self) -> None:
        self.state, self.running = State("base"), list[str]()
        draw = np.random.default_rng(0)
        self._sizes: dict[tuple[str, str], float] = defaultdict(
            lambda: float(draw.lognormal(np.log(MEDIAN), SPREAD))
        )
        generic = facts.PlannedTask(0, OPTIONS, _shard(GENERIC))
        self._happens(facts.SamplesArrived(GENERIC, generic), Upkeep(0))
        self._happens(facts.NodesChanged((facts.Node(1_000_000),)), Upkeep(0))

    def made_up(self, tasks: int) -> None:
        """Add `tasks` tasks, each measured on and refreshed against those near it in order."""
        state, names = self.state, [_name(number) for number in range(1, tasks + 1)]
        rows: dict[str, dict[str, Effect]] = {}
        granted = allowance(ROWS, OPTIONS)
        for number, name in enumerate(names, start=1):
            owner = f"owner of {name}" if number <= min(PRIVATE, tasks // 20) else ""
            state.owners |= {name: owner} if owner else {}
            known = number, OPTIONS, _shard(name), owner, _head(name), granted
            state.tasks[name] = facts.PlannedTask(*known)
            near = names[max(0, number - 1 - RECENT) : number + COLUMN]
            state.champions[name] = VectorVersion(1, f"{name} v1", {_shard(one) for one in near})
            rows[name] = {one: self._effect(name, one) for one in near}
        restore(state, rows)
        state.promoted = dict.fromkeys(names)

    def arrive(self, number: int, counted: Upkeep) -> None:
        """Train a new task, then do all work that follows."""
        name, train = _name(number), f"train {number}"
        granted = allowance(ROWS, OPTIONS)
        known = facts.PlannedTask(number, OPTIONS, _shard(name), allowance=granted)
        self._happens(facts.SamplesArrived(name, known), counted)
        needs = needs_of("train", OPTIONS)
        self._happens(facts.Requested(train, "train", name, needs, urgency_of("train")), counted)
        while self.running:
            self._happens(self._end_of(self.running.pop(0)), counted)

    def _happens(self, event: facts.Event, counted: Upkeep) -> None:
        busy = time.process_time()
        said = handle(self.state, event)
        took = 1000 * (time.process_time() - busy)
        counted.cpu_ms += took
        counted.longest_ms = max(counted.longest_ms, took)
        training = 2 * allowance(ROWS, OPTIONS)
        for one in said:
            if isinstance(one, Measure | RefreshChampion):
                counted.trainings += one.cost / training
            if isinstance(one, Measure):
                counted.pairs += len(one.cells)
            elif isinstance(one, RefreshChampion):
                counted.refreshes += 1
            elif isinstance(one, Start):
                self.running.append(one.run_id)

    def _end_of(self, run_id: str) -> facts.Event:
        run, state = self.state.runs[run_id], self.state
        if run.kind == "measure":
            return facts.CellsMeasured(run_id, {c: self._effect(c.task, c.on) for c in run.cells})
        if run.kind == "fit":
            return facts.Ended(run_id)
        assert run.task is not None
        old = state.champions.get(run.task)
        if run.kind == "refresh":
            self._sizes.update({(run.task, other): 0.0 for other in run.others})
        met = run.others if run.kind == "refresh" else state.tasks.keys() - {run.task}
        version = 1 + (old.version if old else 0)
        seen = (old.seen if old else frozenset()) | {_shard(one) for one in met}
        vector = VectorVersion(version, f"{run.task} v{version}", seen)
        newest = [run.task, *list(state.tasks)[-MET - 1 : -1]]
        heads = {one: state.tasks[one].head for one in newest} | {run.task: _head(run.task)}
        row = {(on, _shard(on), heads[on]): self._effect(run.task, on) for on in newest}
        return facts.Published(run_id, run.task, vector, row, _head(run.task))

    def _effect(self, task: str, on: str) -> Effect:
        size = 1.0 if task == on else self._sizes[task, on]
        return Effect(size, size)


def upkeep(tasks: int) -> Upkeep:
    """Averages over the last arrivals, up to `tasks` tasks."""
    stream, counted = Stream(), Upkeep(tasks)
    begun = max(0, tasks - 3 * LAST)
    stream.made_up(begun)
    heap = GcTuning()  # as in the coordinator
    for number in range(begun + 1, tasks + 1):
        stream.arrive(number, counted if number > tasks - LAST else Upkeep(0))
    heap.release()
    for name in ("pairs", "refreshes", "trainings", "cpu_ms"):
        setattr(counted, name, getattr(counted, name) / LAST)
    return counted


def _name(number: int) -> str:
    return f"task{number}"


def _shard(task: str) -> str:
    return f"samples of {task}"


def _head(task: str) -> str:
    return f"head of {task}"
