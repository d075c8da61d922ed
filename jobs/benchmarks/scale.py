"""Whether the control plane stays flat: `tacl bench scale`.

A real coordinator over a real registry in this process, at two sizes, as in `tacl bench registry`:
every call of a user, a learner and the page in CPU time and bytes, a start, and how long the lock
is held. Nothing is trained.
"""

from __future__ import annotations

import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from pydantic import BaseModel

from cluster.api.access import hashed
from cluster.coordinator.core import Coordinator
from cluster.coordinator.lock import Lock
from cluster.domain.base import RequestContext
from cluster.domain.tasks import ANY
from cluster.domain.work import Lease, Progress
from cluster.scheduler.state import Node
from cluster.storage.samples import store_shard
from jobs.benchmarks.markdown import processor, table
from jobs.benchmarks.population import Population, Say, Size, made_up
from jobs.benchmarks.registry import NOBODY, Idle

SIZES = {
    "100": Size(tasks=100, versions=10, compositions=10_000, rows=16),
    "1,000": Size(tasks=1000, versions=10, compositions=100_000, rows=16),
    "10,000": Size(tasks=10_000, versions=10, compositions=1_000_000, rows=16, shared=50),
}
CPU_MS, BYTES, FLAT, LOCK_MS = 20.0, 64_000, 1.5, 50.0
START_S = dict(zip(SIZES, (5.0, 5.0, 15.0), strict=True))
HELD_MS = (1.0, 5.0, 10.0, 20.0, 50.0, 200.0, 1000.0)  # bounds of the histogram
RARE = ("submit",)  # what a tenth of the rounds is enough for


class Roomy(Idle):
    """Starts as many as are asked for."""

    def nodes(self) -> tuple[Node, ...]:
        return (Node(1_000_000),)


Call = Callable[[int], object]


@dataclass(frozen=True)
class Cost:
    """Of one call: milliseconds of the processor's time, and bytes of the answer as JSON."""

    who: str
    what: str
    size: str
    median_ms: float
    p99_ms: float
    p99_bytes: int


class Held(Lock):
    """Notes for how much of the processor's time it is held, in milliseconds."""

    def __init__(self) -> None:
        super().__init__()
        self._depth, self._since, self.times = 0, 0.0, list[float]()

    def __enter__(self) -> None:
        super().__enter__()
        if self._depth == 0:
            self._since = time.thread_time()
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.times.append(1000 * (time.thread_time() - self._since))
        super().__exit__(*error)


def bench_scale(sizes: Sequence[str], rounds: int, say: Say) -> dict[str, Any]:
    """{machine, rounds, sizes, starts, memory, held, calls, rows: [{what, goal, measured,
    missed}]}: rows are what is aimed at."""
    found: dict[str, Any] = {"rounds": rounds, "sizes": {n: asdict(SIZES[n]) for n in sizes}}
    found |= {"starts": {}, "memory": {}, "held": {}, "calls": []}
    for name in sizes:
        with tempfile.TemporaryDirectory(prefix="tacl-bench-") as folder:
            population = made_up(Path(folder) / "home", SIZES[name])
            population.fill(lambda line, name=name: say(f"{name} tasks: {line}"))
            say(f"{name} tasks: asking")
            _measure(found, population, name, rounds)
    found["machine"] = f"{os.cpu_count()} x {processor()}, load {os.getloadavg()[0]:.1f} at the end"
    found["rows"] = _rows(found)
    return found


def _measure(found: dict[str, Any], population: Population, size: str, rounds: int) -> None:
    gc.collect()
    process = psutil.Process()
    before, starts = process.memory_info().rss, list[float]()
    for _ in range(2):
        busy = time.process_time()
        coordinator = Coordinator(population.home.path, Roomy())
        starts.append(time.process_time() - busy)
        coordinator.close()
    del coordinator
    gc.collect()
    coordinator = Coordinator(population.home.path, Roomy())
    gc.collect()
    gc.freeze()  # as its actor does
    found["starts"][size] = starts
    found["memory"][size] = process.memory_info().rss - before
    coordinator._lock = coordinator._execution._lock = held = Held()
    for who, what, call in calls(population, coordinator, rounds):
        count = max(1, rounds // 10) if what in RARE else rounds
        found["calls"].append(asdict(cost(who, what, size, call, count)))
    found["held"][size] = held.times
    coordinator.close()
    gc.unfreeze()


def cost(who: str, what: str, size: str, call: Call, rounds: int) -> Cost:
    times, sizes = list[float](), list[int]()
    for row in range(rounds):
        busy = time.process_time()
        answer = call(row)
        times.append(1000 * (time.process_time() - busy))
        sizes.append(len(_json(answer)))
    worst, most = (float(np.quantile(one, 0.99, method="higher")) for one in (times, sizes))
    return Cost(who, what, size, statistics.median(times), worst, int(most))


def _json(answer: object) -> str:
    if isinstance(answer, BaseModel):
        return answer.model_dump_json()
    if isinstance(answer, list | tuple):
        return "[" + ",".join(map(_json, answer)) + "]"
    return str(answer)


def calls(
    population: Population, coordinator: Coordinator, rounds: int
) -> Iterator[tuple[str, str, Call]]:
    """(who, what, how), in an order in which none disturbs the next."""
    chosen = np.random.default_rng(0)
    tasks = [population.shards[n].task for n in chosen.integers(0, len(population.tasks), rounds)]
    users = [population.user(n) for n in chosen.integers(0, population.models, rounds)]
    whose = [RequestContext(user=user, limited=True) for user in users]
    moved = chosen.integers(1, len(population.tasks[0].vectors) + 1, rounds)
    call = coordinator

    def new(row: int, verb: str) -> RequestContext:
        return RequestContext(user=users[row], limited=True, request_id=f"bench: {verb} {row}")

    yield "user", "whose token", lambda row: call.holder(hashed(users[row]))
    yield "user", "composition", lambda row: call.composition(whose[row], users[row])
    yield "user", "models that are one's own", lambda row: call.users(whose[row], users[row])
    yield (
        "user",
        "compose",
        lambda row: call.compose(
            new(row, "compose"), users[row], [f"+{one}" for one in sorted({*tasks[row : row + 5]})]
        ),
    )
    yield "user", "update", lambda row: call.update_composition(new(row, "update"), users[row])
    yield "user", "evaluate", lambda row: call.evaluate(new(row, "evaluate"), users[row])
    yield "user", "cancel", lambda row: call.cancel_compositions(new(row, "cancel"), users[row])
    yield "user", "accuracies", lambda row: call.accuracy_history(whose[row], users[row])
    yield "user", "usage", lambda row: call.usage(users[row])
    yield "user", "task", lambda row: call.task(whose[row], tasks[row])
    yield "user", "logs", lambda row: call.logs(whose[row], tasks[row])
    yield "user", "vectors", lambda row: call.vectors(whose[row], tasks[row])
    yield "user", "aliases", lambda row: call.aliases(whose[row], tasks[row])
    yield (
        "user",
        "move an alias",
        lambda row: call.move_alias(new(row, "move"), tasks[row], "stable", int(moved[row]), ANY),
    )
    yield "user", "all users, a page", lambda row: call.users(NOBODY, None, users[row])
    yield "page", "status, the first part", lambda row: call.status(whose[row])
    yield "page", "interference", lambda row: call.interference(whose[row])
    yield "page", "nothing is new", lambda _: call.version()
    blob = store_shard(population.home.blobs(), ["one", "other"], [False, True])
    run_id = coordinator.submit(NOBODY, population.newcomer("first", blob)).run_id
    since = [_version(coordinator)]

    def lease(row: int) -> object:
        progress = Progress(step=row, steps=rounds, loss=1.0, penalty=0.5)
        asked = Lease(run_id=run_id, first=row, last=row, since=row - 1, progress=progress)
        return coordinator.lease(asked)

    def news(row: int) -> object:
        lease(row + rounds)
        told = coordinator.status(whose[row], since[0])
        since[0] = told.version
        return told

    lease(0)  # tells of everybody, once
    yield "learner", "lease", lambda row: lease(row + 1)
    yield "page", "a lease, and what is new", news
    yield (
        "user",
        "submit",
        lambda row: coordinator.submit(NOBODY, population.newcomer(f"new{row}", blob)),
    )
    yield "user", "run", lambda row: call.run(NOBODY, run_id)
    yield "page", "status after arrivals", lambda row: call.status(whose[row])
    yield (
        "user",
        "move the champion",
        lambda row: call.move_alias(
            new(row, "crown"), tasks[row], "champion", int(moved[row]), ANY
        ),
    )


def _version(coordinator: Coordinator) -> str:
    told = coordinator.status(NOBODY)
    while told.more:
        told = coordinator.status(NOBODY, told.version)
    return told.version


def _rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """What is aimed at, and what was measured."""
    rows = list[dict[str, Any]]()

    def add(what: str, goal: float, measured: float) -> None:
        rows.append({"what": what, "goal": goal, "measured": measured, "missed": measured > goal})

    for size, starts in found["starts"].items():
        add(f"start at {size} tasks, CPU seconds", START_S[size], max(starts))
    for size, times in found["held"].items():
        add(f"longest time under the lock at {size} tasks, CPU ms", LOCK_MS, max(times))
    medians: dict[str, list[float]] = {}
    for one in found["calls"]:
        what = f"{one['who']}: {one['what']}"
        medians.setdefault(what, []).append(one["median_ms"])
        add(f"{what}, at {one['size']} tasks, CPU ms at p99", CPU_MS, one["p99_ms"])
        add(f"{what}, at {one['size']} tasks, bytes at p99", BYTES, one["p99_bytes"])
    for what, each in medians.items():
        if len(each) > 1:
            add(f"{what}, larger / smaller, of the medians", FLAT, each[-1] / each[0])
    return rows


HEAD = """# Whether the control plane stays flat

`tacl bench scale{options}` on {machine}.

{sizes}

A real coordinator over SQLite, in one process; Ray adds its round trip. CPU times, which other work
on the machine changes least, of {rounds} calls each (`submit`: a tenth): median / 99th percentile,
and bytes of the answer as JSON at the 99th percentile. Goals: at most {CPU_MS:g} ms and {BYTES:,}
bytes, the median of the larger home at most {FLAT:g} times that of the smaller.

![CPU times and lock](scale.png)

"""


def markdown(found: dict[str, Any], options: str = "") -> str:
    """The file of `results`."""
    sizes = "\n".join(f"- {name}: {_described(one)}" for name, one in found["sizes"].items())
    head = HEAD.format(
        options=options,
        machine=found["machine"],
        sizes=sizes,
        rounds=found["rounds"],
        CPU_MS=CPU_MS,
        BYTES=BYTES,
        FLAT=FLAT,
    )
    names = list(found["sizes"])
    columns = ["who", "call", *(f"{name} tasks" for name in names), "larger / smaller"]
    missed = [f"- {_said(row)}" for row in found["rows"] if row["missed"]]
    parts = [head + table(columns, _calls(found), "---:"), "", "## A start, and the lock", ""]
    parts += [f"- start at {n} tasks: {_starts(found, n)}" for n in names]
    parts += [f"- memory of the coordinator at {n} tasks: {_mib(found, n)} MiB" for n in names]
    parts += ["", table(["held for, CPU ms", *names], histogram(found), "---:"), ""]
    parts += ["## Missed", "", *(missed or ["Nothing."]), ""]
    return "\n".join(parts)


def _described(one: dict[str, Any]) -> str:
    shared = "" if one["shared"] is None else f", of which {one['shared']:,} share their samples"
    return (
        f"{one['tasks']:,} tasks{shared}, {one['versions']} versions of each, "
        f"{one['compositions']:,} users with a model"
    )


def _starts(found: dict[str, Any], size: str) -> str:
    return " and ".join(f"{one:.2f}" for one in found["starts"][size]) + " CPU seconds"


def _mib(found: dict[str, Any], size: str) -> int:
    return round(found["memory"][size] / 2**20)


def _said(row: dict[str, Any]) -> str:
    return f"{row['what']}: {row['measured']:,.4g}; goal {row['goal']:,g}"


def _calls(found: dict[str, Any]) -> list[list[str]]:
    by = {(one["who"], one["what"], one["size"]): one for one in found["calls"]}
    rows = list[list[str]]()
    for who, what in dict.fromkeys((who, what) for who, what, _ in by):
        each = [by[who, what, size] for size in found["sizes"]]
        cells = [f"{c['median_ms']:,.2f} / {c['p99_ms']:,.2f}, {c['p99_bytes']:,} B" for c in each]
        ratio = f"{each[-1]['median_ms'] / each[0]['median_ms']:.2f}" if len(each) > 1 else ""
        rows.append([who, what, *cells, ratio])
    return rows


def histogram(found: dict[str, Any]) -> list[list[str]]:
    """How often the lock was held so long."""
    bounds = [0.0, *HELD_MS, float("inf")]
    rows = list[list[str]]()
    for low, high in pairwise(bounds):
        said = f"{low:g} to {high:g}" if high < float("inf") else f"over {low:g}"
        held = found["held"].values()
        rows.append([said, *(f"{sum(low <= t < high for t in times):,}" for times in held)])
    return rows


def picture(found: dict[str, Any], path: Path) -> None:
    """The calls by their CPU time, and how long the lock is held."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 7), layout="constrained")
    for place, size in enumerate(found["sizes"]):
        own = [one for one in found["calls"] if one["size"] == size]
        rows = np.arange(len(own)) + 0.4 * place
        left.barh(rows, [one["p99_ms"] for one in own], 0.4, label=f"{size} tasks")
        left.set_yticks(np.arange(len(own)), [f"{one['who']}: {one['what']}" for one in own])
        times = np.sort(found["held"][size])
        right.plot(times, 1 - np.arange(len(times)) / len(times), label=f"{size} tasks")
    left.axvline(CPU_MS, color="black", linestyle=":")
    left.set(xscale="log", xlabel="CPU ms, 99th percentile")
    left.invert_yaxis()
    left.legend()
    right.axvline(LOCK_MS, color="black", linestyle=":")
    right.set(xscale="log", yscale="log", xlabel="CPU ms under the lock", ylabel="share longer")
    figure.savefig(path, dpi=120)
    plt.close(figure)
