"""Queued trainings: learners that continue with the next one, against a process for each.

Each way has a cluster of its own, the embedded base model and generated pictures; both get the same
requests, and take turns. Measured are the time until the last training has its vector, and the CPU
time of all processes of the cluster, which other work on the machine does not change.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from cluster.client.client import Client
from cluster.runtime.launch import start
from cluster.scheduler.reuse import RUNS
from cluster.storage.home import Founding
from jobs.benchmarks.processes import SeenProcess, head_of, seen, taken
from jobs.benchmarks.timing import Race, Say
from jobs.console.own_cluster import own_cluster
from tacl import embedded

ROWS, CPUS = 400, 2
WAYS = {"alone": 1, "reused": RUNS}  # the most pieces of work of one process
POLL = 0.25  # seconds


class Took(NamedTuple):
    """Seconds of wall clock and of CPU."""

    seconds: float
    cpu: float


def bench_learners(runs: int, steps: int, rounds: int, say: Say) -> dict[str, Any]:
    """Medians over the rounds; ratios are within a round."""
    found: dict[str, list[Took]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = Path(place)
        for run in range(runs):
            embedded.write_parquet("shapes", folder / f"task{run}", ROWS, ROWS // 4, seed=run)
        for turn, way in enumerate(list(WAYS) * rounds):
            say(turn, rounds * len(WAYS))
            found[way].append(took(folder, f"home{turn}", WAYS[way], runs, steps))
    clock = Race({way: [one.seconds for one in taken] for way, taken in found.items()})
    cpu = Race({way: [one.cpu for one in taken] for way, taken in found.items()})
    return {
        "runs": runs,
        "steps": steps,
        "rounds": rounds,
        "cpus": CPUS,
        **clock.figures(),
        "cpu": cpu.figures(),
        "sooner": clock.ratio("alone", "reused"),
        "less_cpu": cpu.ratio("alone", "reused"),
    }


def took(folder: Path, home: str, most: int, runs: int, steps: int) -> Took:
    """From the first submission to the last vector, on a new cluster whose processes do at most
    `most` pieces of work."""
    names = [f"task{run}" for run in range(runs)]

    def up(new: Client) -> None:
        start(new.home, Founding("embedded"), CPUS, None, False, lambda line: None, most)

    with own_cluster(folder / home, up) as client, CpuSpent(client) as spent:
        begun = time.monotonic()
        for name in names:
            client.submit(name, folder / name, steps=steps, refresh="never", heads="trained")
        client.wait(*names, poll=POLL)
        seconds = time.monotonic() - begun
    return Took(seconds, spent.seconds)


class CpuSpent:
    """CPU seconds of the processes of a cluster within the block, except what each uses after it
    was last seen."""

    def __init__(self, client: Client) -> None:
        self._head = head_of(client.home)
        self._seen: dict[int, SeenProcess] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> CpuSpent:
        self._before = seen(self._head)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        self.seconds = sum(taken(self._before, self._seen | seen(self._head)).values())

    def _look(self) -> None:
        while not self._ended.wait(POLL):
            self._seen |= seen(self._head)
