"""How many learners one coordinator carries: `tacl bench scale --fleet N`.

The coordinator is an actor of a Ray cluster of its own, with its ticks, its registry and its files.
Its learners only ask: each takes a lease of as many steps as it does in two seconds, and tells how
far it is, as one that trains. What their processes and Ray itself take of the processors is not
counted.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cluster.coordinator.core import Coordinator
from cluster.domain.outcomes import Outcome
from cluster.domain.work import Lease, Progress, Work
from cluster.runtime.watched import WatchedCoordinator
from cluster.scheduler.adoption import Attempt
from cluster.scheduler.state import Needs, Node
from cluster.storage.samples import store_shard
from jobs.benchmarks.calls import NOBODY
from jobs.benchmarks.population import Say, Size, made_up

HOME = Size(tasks=10, versions=2, compositions=0, rows=16)
STEPS, SECONDS = 20, 2.0  # of a lease: ten steps a second
ASKING = 20.0  # seconds that a fleet of each size asks for
PERIOD = 0.2  # seconds between two ticks, as of the actor
PROCESSES, CPUS = 2, 2  # that learners share; of the cluster
STEP_MS, CORE = 1000 * SECONDS / STEPS, 0.5  # goals: the longest wait, and of one core


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
class Fleet:
    """What learners of this number asked, and waited."""

    learners: int
    answers: int
    seconds: float
    cpu: float  # seconds that the coordinator's process took of the processors
    wait_p50: float  # milliseconds
    wait_p99: float

    @property
    def core(self) -> float:
        """Of one core, the share that as many learners need, each answered in time."""
        return self.learners / SECONDS * self.cpu / self.answers

    @property
    def carried(self) -> int:
        """The learners that half a core would answer."""
        return int(self.learners * CORE / self.core)


class WatchedFleet(WatchedCoordinator):
    """A coordinator as it is, but that the launcher of its runs starts nothing."""

    def __init__(self, home: str) -> None:
        self._coordinator, self._turn = Coordinator(home, Idle()), threading.Lock()
        gc.collect()
        gc.freeze()
        threading.Thread(target=self._watch, daemon=True).start()

    def cpu_seconds(self) -> float:
        return time.process_time()

    def _watch(self) -> None:
        while True:
            time.sleep(PERIOD)
            self._coordinator.tick()


class Learners:
    """Some of a fleet, in one process."""

    def __init__(self, coordinator: Any, runs: Sequence[str]) -> None:
        self._coordinator = coordinator
        self._next = dict.fromkeys(runs, 0)  # the step that each is at

    async def ask(self, learners: int, seconds: float = ASKING) -> list[float]:
        """Milliseconds that each lease was waited for, by so many of them."""
        until = time.monotonic() + seconds
        runs = list(self._next)[:learners]
        begins = np.arange(len(runs)) * SECONDS / max(1, len(runs))
        asked = (self._train(*one, until) for one in zip(runs, begins, strict=True))
        return [wait for waits in await asyncio.gather(*asked) for wait in waits]

    async def _train(self, run_id: str, begins: float, until: float) -> list[float]:
        await asyncio.sleep(begins)
        waits: list[float] = []
        while time.monotonic() < until:
            first, asked = self._next[run_id], time.monotonic()
            progress = Progress(step=first, steps=1_000_000, loss=0.5, penalty=0.1)
            lease = Lease(run_id=run_id, first=first, last=first + STEPS - 1, since=first - 1)
            lease = lease.model_copy(update={"progress": progress})
            await self._coordinator.lease.remote(lease)
            waits.append(1000 * (time.monotonic() - asked))
            self._next[run_id] += STEPS
            await asyncio.sleep(SECONDS)
        return waits


def bench_fleet(most: int, say: Say) -> list[Fleet]:
    """Fleets of a quarter of `most`, of half, and of all."""
    with tempfile.TemporaryDirectory(prefix="tacl-bench-") as folder:
        runs = _begun(Path(folder) / "home", most, say)
        with _cluster() as ray:
            home = str(Path(folder) / "home")
            coordinator = ray.remote(num_cpus=0)(WatchedFleet).remote(home)
            shares = [runs[n::PROCESSES] for n in range(PROCESSES)]
            make = ray.remote(num_cpus=0)(Learners).remote
            processes = [make(coordinator, share) for share in shares]
            return [
                _asked(ray, coordinator, processes, learners, say)
                for learners in (most // 4, most // 2, most)
            ]


def _begun(home: Path, most: int, say: Say) -> list[str]:
    """Trainings that run, by id; none sees the samples of another."""
    population = made_up(home, HOME)
    population.fill(say)
    say(f"submitting {most} tasks")
    blob = store_shard(population.home.blobs(), ["one", "other"], [False, True])
    coordinator = Coordinator(home, Idle())
    runs: list[str] = []
    for number in range(most):
        task = population.newcomer(f"fleet{number}", blob)
        alone = task.options.model_copy(update={"share": "none"})
        task = task.model_copy(update={"options": alone})
        runs.append(coordinator.submit(NOBODY, task).run_id)
    coordinator.close()
    return runs


def _asked(ray: Any, coordinator: Any, processes: Sequence[Any], learners: int, say: Say) -> Fleet:
    say(f"{learners} learners ask")
    busy, begun = ray.get(coordinator.cpu_seconds.remote()), time.monotonic()
    found = ray.get([one.ask.remote(learners // PROCESSES) for one in processes])
    seconds = time.monotonic() - begun
    cpu = ray.get(coordinator.cpu_seconds.remote()) - busy
    waits = [wait for some in found for wait in some]
    middle, worst = np.quantile(waits, (0.5, 0.99))
    return Fleet(learners, len(waits), seconds, cpu, float(middle), float(worst))


@contextmanager
def _cluster() -> Iterator[Any]:
    import ray

    ray.init("local", num_cpus=CPUS, include_dashboard=False, log_to_driver=False)
    try:
        yield ray
    finally:
        ray.shutdown()
