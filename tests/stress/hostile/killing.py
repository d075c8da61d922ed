"""Who is killed, when the server is whole again, and how much memory each kind of process has."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress

import httpx2
import psutil

from cluster.storage.home import Home
from tests.integration.test_head import processes

ORDER = (  # in turn
    *("predictor", "coordinator", "raylet", "learner", "ingress", "learner"),
    *("coordinator", "predictor", "gcs", "learner", "ingress", "coordinator"),
)
KINDS = {  # by what their command lines hold
    "predictor": "ray::ServeReplica:tacl:predictor",
    "ingress": "ray::ServeReplica:tacl:ingress",
    "proxy": "ray::ProxyActor",
    "controller": "ray::ServeController",
    "coordinator": "ray::WatchedCoordinator",
    "learner": "ray::LearnerProcess",
    "reader": "cluster.serving.preparing",
    "raylet": "raylet/raylet ",
    "gcs": "gcs/gcs_server",
    "head": "cluster.runtime.head",
}
WHOLE_SECONDS = 900.0  # of a busy machine; how long each took is told
SETTLE = 2.0  # seconds that the server has been whole before it counts as such


class Processes:
    def __init__(self, home: Home) -> None:
        self._home = home
        self.most: Counter[str] = Counter()  # bytes, by kind
        self.killed: Counter[str] = Counter()

    def of(self, kind: str) -> list[int]:
        return [pid for pid, command in processes(self._home).items() if KINDS[kind] in command]

    def weigh(self) -> None:
        own = {child.pid for child in psutil.Process().children()}
        found = {p: command for p, command in processes(self._home).items() if p not in own}
        if running := self._home.running():
            found[running.pid] = KINDS["head"]
        for pid, command in found.items():
            kind = next((kind for kind, mark in KINDS.items() if mark in command), "others")
            with suppress(psutil.NoSuchProcess):
                size = psutil.Process(pid).memory_info().rss
                self.most[kind] = max(self.most[kind], size)

    def kill(self, kind: str, chance: random.Random) -> bool:
        """False where there is none, as of a learner while nothing is learned."""
        found = self.of(kind)
        if not found:
            return False
        with suppress(ProcessLookupError):
            os.kill(chance.choice(found), signal.SIGKILL)
            self.killed[kind] += 1
            return True
        return False


def is_whole(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/v1/ready", timeout=5, trust_env=False).status_code == 200
    except httpx2.HTTPError:
        return False


def seconds_until_whole(url: str, processes: Processes) -> float:
    """Raises TimeoutError."""
    began = time.monotonic()
    time.sleep(1.5)  # what was found before the kill is told for a second
    while not is_whole(url):
        if time.monotonic() > began + WHOLE_SECONDS:
            raise TimeoutError(f"the server is not whole {WHOLE_SECONDS:g} s after a kill")
        processes.weigh()
        time.sleep(0.3)
    found = time.monotonic() - began
    time.sleep(SETTLE)
    return found
