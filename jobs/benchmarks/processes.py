"""The processes of a cluster: kind, CPU time and memory of each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

import psutil

from cluster.storage.home import Home

REPLICA = "ray::ServeReplica:"  # the title that Serve gives a process, before APP:DEPLOYMENT
KINDS = {
    f"{REPLICA}tacl:predictor": "predictor",
    f"{REPLICA}tacl:ingress": "ingress",
    f"{REPLICA}echo:": "ingress",  # does no work (`jobs.benchmarks.echo`)
    "ray::ProxyActor": "proxy",
}
REST = "rest"  # the coordinator, Serve's controller, Ray


class SeenProcess(NamedTuple):
    kind: str
    seconds: float  # CPU seconds so far


def replicas(head: int, deployment: str) -> list[int]:
    """Ids of processes of this head's cluster that serve this deployment."""
    return [p.pid for p in _family(head) if _title(p).startswith(f"{REPLICA}tacl:{deployment}")]


def head_of(home: Home) -> int:
    """The parent of all other processes of the home's cluster, which must run."""
    running = home.running()
    assert running is not None
    return running.pid


def seen(head: int) -> dict[int, SeenProcess]:
    """Every process of a cluster by its id."""
    found: dict[int, SeenProcess] = {}
    for process in _family(head):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found[process.pid] = SeenProcess(kind_of(_title(process)), times.user + times.system)
    return found


def taken(before: Mapping[int, SeenProcess], after: Mapping[int, SeenProcess]) -> dict[str, float]:
    """CPU seconds by kind, of processes that still exist."""
    found = defaultdict[str, float](float)
    for pid, one in after.items():
        found[one.kind] += one.seconds - (before[pid].seconds if pid in before else 0.0)
    return dict(found)


def memory(head: int) -> dict[str, int]:
    """Bytes by kind; memory shared by several processes counts in part for each (PSS)."""
    found = Counter[str]()
    for process in _family(head):
        with suppress(psutil.NoSuchProcess):
            found[kind_of(_title(process))] += process.memory_full_info().pss
    return dict(found)


def kind_of(title: str) -> str:
    return next((kind for start, kind in KINDS.items() if title.startswith(start)), REST)


def _family(head: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(head)
        return [process, *process.children(recursive=True)]
    return []


def _title(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""
