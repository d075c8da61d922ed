"""Estimates when runs will be done, for people: no decision depends on it. No I/O.

What runs is taken to continue at the pace of its latest steps. What waits is taken to last as long
as the latest runs of its kind, and to start in the order of the queue once enough CPUs and GPUs are
free. On which node, and who may pass whom, is not considered.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from cluster.domain.base import GPU_PARTS
from cluster.domain.status import RunState
from cluster.scheduler.queue import free, in_order
from cluster.scheduler.state import PlannedRun, State, Urgency

HORIZON = 100  # waiting runs that get an estimate
KEPT = 4  # ended runs of a kind, from which the next is estimated
LOOKS = 16  # latest reports of a run, which give its pace: half a minute of leases of 2 s
Kind = tuple[str, bool]  # of work, and whether its vector is imported


class Steps(NamedTuple):
    """One report of a run: seconds since 1970, how far it was, and of how many steps."""

    at: float
    done: int
    of: int


class Forecast:
    """How long runs take. Times are seconds since 1970."""

    def __init__(self) -> None:
        self._each: dict[Kind, deque[float]] = {}  # seconds for one unit of size
        self._begun: dict[str, float] = {}
        self._looks: dict[str, deque[Steps]] = {}

    def begun(self, run_id: str, at: float) -> None:
        """An attempt of the run started."""
        self.forget(run_id)
        self._begun[run_id] = at

    def stepped(self, run_id: str, done: int, steps: int, at: float) -> None:
        looks = self._looks.setdefault(run_id, deque(maxlen=LOOKS))
        if looks and done < looks[-1].done:  # it counts something else now
            looks.clear()
        looks.append(Steps(at, done, steps))

    def ended(self, state: State, run: PlannedRun, at: float) -> None:
        """The run ended with a result."""
        if run.run_id in self._begun:
            self.took(state, run, at - self._begun[run.run_id])

    def took(self, state: State, run: PlannedRun, seconds: float) -> None:
        """Take in the time of a run with a result; not if its task, and so its size, is gone."""
        if run.task is not None and run.task not in state.tasks:
            return
        each = self._each.setdefault(_kind(run), deque(maxlen=KEPT))
        each.append(max(0.0, seconds) / size_of(state, run))

    def forget(self, run_id: str) -> None:
        self._begun.pop(run_id, None)
        self._looks.pop(run_id, None)

    def left(self, state: State, run: PlannedRun, now: float) -> float | None:
        """The seconds of work left; None if unknown: nothing of its kind has ended here, or the run
        takes longer than those that have."""
        each = self._each.get(_kind(run))
        whole = median(each) * size_of(state, run) if each else None
        if run.state != RunState.RUNNING:
            return whole
        if (paced := rest(self._looks.get(run.run_id, ()), now)) is not None:
            return paced
        elapsed = now - self._begun.get(run.run_id, now)
        return whole - elapsed if whole is not None and whole > elapsed else None


def rest(looks: Sequence[Steps], now: float) -> float | None:
    """Seconds until all steps are done, at the pace of the reports. Silence beyond the longest gap
    between two reports is time in which nothing was done. None until two reports differ."""
    if not looks or looks[-1].done <= looks[0].done:
        return None
    first, last = looks[0], looks[-1]
    silent, longest = now - last.at, max(after.at - one.at for one, after in pairwise(looks))
    late = max(0.0, silent - longest)
    each = (last.at - first.at + late) / (last.done - first.done)
    return max(0.0, (last.of - last.done) * each - (silent - late))


def _kind(run: PlannedRun) -> Kind:
    return run.kind, run.kind == "train" and run.urgency == Urgency.AWAITED


def size_of(state: State, run: PlannedRun) -> int:
    """What its time grows with: rows of a training, pairs of a measure, tasks of a fit."""
    task = state.tasks.get(run.task or "")
    of_training = run.kind == "train" and run.urgency == Urgency.TRAINING
    known = {"measure": len(run.cells), "fit": run.tasks}
    known |= {"train": task.allowance} if task and of_training else {}
    return max(1, known.get(run.kind, 1))


def ends(state: State, left: Callable[[PlannedRun], float | None], now: float) -> dict[str, float]:
    """When runs will be done, by id: those that run, and the first HORIZON that wait. `left`
    returns the seconds that each needs. A run of unknown length, or behind one, is left out."""
    room = free(state)
    cpus = [now] * max(0, room.cpus)  # when each is free
    gpus = [now] * max(0, int(GPU_PARTS * room.gpus))
    found: dict[str, float] = {}
    for run in state.running + in_order(state)[:HORIZON]:
        groups, waits = run.needs.workers, run.state == RunState.QUEUED
        parts = int(GPU_PARTS * run.needs.gpus)
        wanted = (cpus, groups * run.needs.cpus), (gpus, groups * parts)
        if waits and any(count > len(places) for places, count in wanted):
            continue  # no node can hold it
        taken = [heapq.heappop(places) for places, count in wanted for _ in range(count * waits)]
        seconds = left(run)
        end = max([now, *taken]) + (math.inf if seconds is None else seconds)
        for places, count in wanted:
            for _ in range(count):
                heapq.heappush(places, end)
        if end < math.inf:
            found[run.run_id] = end
    return found
