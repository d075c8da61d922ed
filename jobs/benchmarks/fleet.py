"""How many learners one coordinator can serve: `tacl bench scale --fleet N`.

The coordinator is an actor of a Ray cluster of its own, with its ticks, its registry and its files.
Its learners only make requests: like a training, each takes a lease of the steps that it does in
the seconds that the previous answer named, and reports its progress. Meanwhile tasks arrive that
share samples, and all learners are informed of them. CPU time of the learners' processes and of Ray
itself is not counted.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from cluster.coordinator.core import Coordinator
from cluster.domain.outcomes import Outcome
from cluster.domain.tasks import Submission
from cluster.domain.work import Lease, Progress, Work
from cluster.runtime.gc_tuning import GcTuning
from cluster.runtime.watched import WatchedCoordinator
from cluster.scheduler.adoption import Attempt
from cluster.scheduler.leases import LONGEST
from cluster.scheduler.state import Needs, Node
from cluster.storage.samples import store_shard
from jobs.benchmarks.calls import NOBODY
from jobs.benchmarks.population import Say, Size, made_up

HOME = Size(tasks=10, versions=2, compositions=0, rows=16)
RATE = 10  # optimizer steps of a learner, a second
ASKING = 20.0  # seconds of requests by a fleet of each size
ARRIVES = 5.0  # seconds between two tasks that share their samples
SETTLED, ROUNDS = 0.1, 6  # change of a lease that counts as none; most fleets until then
PERIOD = 0.2  # seconds between two ticks, as in the actor
PROCESSES, CPUS = 2, 2  # shared by the learners; of the cluster
STEP_MS, CORE = 1000 / RATE, 0.5  # goals: the longest wait, the share of one core
GROWTH, FURTHEST = 1.5, 8  # of one fleet to the next, and to what was requested


class IdleLauncher:
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

    def ended(self, handles: Mapping[str, str]) -> tuple[str, ...]:
        return ()

    def poll(self, handle: str) -> Outcome | None:
        return None

    def let_go(self, handle: str) -> None:
        pass

    def cancel(self, handle: str) -> None:
        pass


@dataclass(frozen=True)
class Fleet:
    """The requests of a number of learners, and how long they waited."""

    learners: int
    answers: int
    seconds: float
    cpu: float  # CPU seconds of the coordinator's process
    wait_p50: float  # milliseconds
    wait_p99: float
    lease: float  # seconds, set by the coordinator
    beyond: bool = False  # whether it has more learners than requested, to find the limit

    @property
    def is_carried(self) -> bool:
        """Whether both goals are met."""
        return self.core <= CORE and self.wait_p99 <= STEP_MS

    @property
    def core(self) -> float:
        """The share of one core that these learners need if each is answered in time."""
        return self.learners / self.lease * self.cpu / self.answers


class Answer(NamedTuple):
    wait: float  # milliseconds
    lease: float  # seconds of the next lease


class WatchedFleet(WatchedCoordinator):
    """A real coordinator, except that its launcher starts nothing."""

    def __init__(self, home: str) -> None:
        self._coordinator, self._turn = Coordinator(home, IdleLauncher()), threading.Lock()
        self._heap = GcTuning()
        threading.Thread(target=self._watch, daemon=True).start()

    def cpu_seconds(self) -> float:
        return time.process_time()

    def _watch(self) -> None:
        while True:
            time.sleep(PERIOD)
            self._coordinator.tick()


class Learners:
    """A part of a fleet, in one process."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator
        self._next: dict[str, int] = {}  # the step that each has reached

    async def ask(self, runs: Sequence[str], lease: float, seconds: float) -> list[Answer]:
        """The answers to these runs, which request leases for `seconds`. Their first leases have
        `lease` seconds, and start spread over that time."""
        until = time.monotonic() + seconds
        begins = np.arange(len(runs)) * lease / max(1, len(runs))
        asked = (self._train(*one, lease, until) for one in zip(runs, begins, strict=True))
        return [answer for answers in await asyncio.gather(*asked) for answer in answers]

    async def _train(self, run_id: str, begins: float, lease: float, until: float) -> list[Answer]:
        await asyncio.sleep(begins)
        answers: list[Answer] = []
        while time.monotonic() < until:
            first, steps = self._next.get(run_id, 0), int(RATE * lease)
            progress = Progress(step=first, steps=1_000_000, loss=0.5, penalty=0.1)
            asked = Lease(run_id=run_id, first=first, last=first + steps - 1, since=first - 1)
            begun = time.monotonic()
            told = self._coordinator.lease.remote(asked.model_copy(update={"progress": progress}))
            lease = (await told).seconds
            answers.append(Answer(1000 * (time.monotonic() - begun), lease))
            self._next[run_id] = first + steps
            await asyncio.sleep(steps / RATE)
        return answers


def bench_fleet(most: int, say: Say) -> list[Fleet]:
    """Fleets of growing size on a cluster without other trainings."""
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    with tempfile.TemporaryDirectory(prefix="tacl-bench-") as folder:
        home = Path(folder) / "home"
        tasks, newcomers, runs = *fleet_of(home, say), list[str]()
        with ray.init("local", num_cpus=CPUS, include_dashboard=False, **quiet):
            actor: Any = ray.remote(num_cpus=0)
            coordinator = actor(WatchedFleet).remote(str(home))
            processes = [actor(Learners).remote(coordinator) for _ in range(PROCESSES)]

            def measured(learners: int) -> Fleet:
                say(f"{learners:,} learners ask")
                new = islice(tasks, learners - len(runs))
                begun = [coordinator.submit.remote(NOBODY, task) for task in new]
                runs.extend(one.run_id for one in ray.get(begun))
                return _asked(ray, coordinator, processes, runs, newcomers)

            return growing(most, measured)


def growing(most: int, measured: Callable[[int], Fleet]) -> list[Fleet]:
    """Fleets of a quarter of `most`, of half, and of all; if all goals are met, larger ones until
    one misses a goal."""
    found = [measured(learners) for learners in (most // 4, most // 2, most) if learners]
    while found[-1].is_carried and (more := ceil(GROWTH * found[-1].learners)) <= FURTHEST * most:
        found.append(replace(measured(more), beyond=True))
    return found


def fleet_of(home: Path, say: Say) -> tuple[Iterator[Submission], Iterator[Submission]]:
    """Endless tasks of a new home: those of learners, which share no samples, as a home has few
    tasks compared with so many learners; and others that do, of which every learner is informed."""
    population = made_up(home, HOME, say)
    blob = store_shard(population.home.blobs(), ["one", "other"], [False, True])
    sharing = (population.newcomer(f"newcomer{number}", blob) for number in count())
    alone = (
        task.model_copy(update={"options": task.options.model_copy(update={"share": "none"})})
        for task in (population.newcomer(f"fleet{number}", blob) for number in count())
    )
    return alone, sharing


def settled(ask: Callable[[float], Sequence[Answer]]) -> float:
    """The length of leases once it is stable: the first answers list all existing tasks, and cost
    the coordinator more than those that follow."""
    lease = LONGEST
    for _ in range(ROUNDS):
        told = median(answer.lease for answer in ask(lease))
        if abs(told - lease) <= SETTLED * lease:
            return told
        lease = told
    return lease


def _asked(
    ray: Any,
    coordinator: Any,
    processes: Sequence[Any],
    runs: Sequence[str],
    newcomers: Iterator[Submission],
) -> Fleet:
    shares = [(one, runs[n::PROCESSES]) for n, one in enumerate(processes)]

    def begun(lease: float, seconds: float) -> list[Any]:
        return [one.ask.remote(share, lease, seconds) for one, share in shares]

    def answers(asking: Sequence[Any]) -> list[Answer]:
        return [answer for some in ray.get(asking) for answer in some]

    lease = settled(lambda lease: answers(begun(lease, lease)))
    busy, start = ray.get(coordinator.cpu_seconds.remote()), time.monotonic()
    asking = begun(lease, ASKING)
    while ray.wait(asking, num_returns=len(asking), timeout=ARRIVES)[1]:
        ray.get(coordinator.submit.remote(NOBODY, next(newcomers)))
    found = answers(asking)
    seconds = time.monotonic() - start
    cpu = ray.get(coordinator.cpu_seconds.remote()) - busy
    middle, worst = map(float, np.quantile([one.wait for one in found], (0.5, 0.99)))
    told = median(one.lease for one in found)
    return Fleet(len(runs), len(found), seconds, cpu, middle, worst, told)
