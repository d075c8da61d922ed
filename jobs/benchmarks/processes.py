"""The processes of a cluster: what each does, the processor time that it took, its memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

import psutil

from cluster.storage.home import Home

REPLICA = "ray::ServeReplica:"  # as Serve titles a process, and then APP:DEPLOYMENT
KINDS = {
    f"{REPLICA}tacl:predictor": "predictor",
    f"{REPLICA}tacl:ingress": "ingress",
    f"{REPLICA}echo:": "ingress",  # which does no work (`jobs.benchmarks.echo`)
    "ray::ProxyActor": "proxy",
}
REST = "rest"  # the coordinator, Serve's controller, Ray


class SeenProcess(NamedTuple):
    kind: str
    seconds: float  # of processors so far


def replicas(head: int, deployment: str) -> list[int]:
    """Processes of the cluster of this head that serve this."""
    return [p.pid for p in _family(head) if _title(p).startswith(f"{REPLICA}tacl:{deployment}")]


def head_of(home: Home) -> int:
    """The process that is above all others of its cluster, which runs."""
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
    """Seconds of processors by kind; of those that are still there."""
    found = defaultdict[str, float](float)
    for pid, one in after.items():
        found[one.kind] += one.seconds - (before[pid].seconds if pid in before else 0.0)
    return dict(found)


def memory(head: int) -> dict[str, int]:
    """Bytes by kind; what several processes share counts as a part of each (PSS)."""
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
