"""Queries over HTTP: many users, each with a recipe of their own, from a second process.

A home of its own with the embedded base model and random vectors; the server as `tacl serve` starts
it; `jobs.benchmarks.load`; and, in the same run, a plain loop over the same batches with one model
for all.
"""

from __future__ import annotations

import math
import socket
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cluster.client.client import Client
from jobs.benchmarks import load as loading
from jobs.benchmarks import processes
from jobs.benchmarks.echo import MODEL, Expected, echoing
from jobs.benchmarks.submit import CPUS
from jobs.benchmarks.synthetic import PICTURES, founded, pictures_of
from jobs.benchmarks.timing import Say, in_turns
from jobs.console.documents import markdown_table
from jobs.console.own_cluster import own_cluster
from tacl.models.mixed import MultiRecipeEncoder, alone, summed

COLD = 100_000  # users from here on query once, right after composing
ROWS = 64  # of a batch without a server around it


# -- the load


@dataclass(frozen=True)
class LoadFigures:
    """What a number of users got; times in seconds."""

    users: int
    requests: int
    answers: int
    per_second: float
    p50: float
    p95: float
    p99: float
    longest: float
    wrong: int
    again: dict[str, int]
    killed: dict[str, int]
    cpu: float | None = None  # seconds of the server per request; unknown if some were killed
    bytes_per_user: float = 0.0
    cold: float | None = None  # of a recipe that was not queried before


def facts(
    users: int,
    asking: loading.LoadPlan,
    seconds: float,
    tally: loading.LoadResult,
    cpu: float | None = None,
) -> LoadFigures:
    p50, p95, p99 = map(float, np.quantile(tally.latencies, (0.5, 0.95, 0.99)))
    return LoadFigures(
        users=users,
        requests=asking.requests,
        answers=asking.requests * asking.pictures,
        per_second=asking.requests / seconds,
        p50=p50,
        p95=p95,
        p99=p99,
        longest=max(tally.latencies),
        wrong=tally.wrong,
        again=dict(tally.again),
        killed=dict(tally.killed),
        cpu=cpu,
    )


def measured(
    askers: loading.LoadGenerator,
    head: int,
    users: int,
    asking: loading.LoadPlan,
    say: loading.Say = print,
) -> tuple[LoadFigures, dict[str, float]]:
    """Also CPU seconds per request, by kind of process below `head`."""
    before, started = processes.seen(head), time.perf_counter()
    tally = askers.ask(asking, head, say)
    seconds = time.perf_counter() - started
    spent = processes.taken(before, processes.seen(head))
    cpu = {kind: of_all / asking.requests for kind, of_all in spent.items()}
    return facts(users, asking, seconds, tally, None if asking.kills else sum(cpu.values())), cpu


class Loads:
    """Loads on the server at `url`."""

    def __init__(self, client: Client, url: str, oracle: loading.Oracle, say: loading.Say) -> None:
        self._client, self._url, self._oracle, self._say = client, url, oracle, say
        self._head = processes.head_of(client.home)
        self._digests: dict[int, str] = {}  # of the models that were composed
        self._token = client.issue_token("loader", "admin").token or ""

    def load(self, users: int, asking: loading.LoadPlan) -> LoadFigures:
        """Compose for the users and query; every answer is checked."""
        self._say(f"composing for {users} users")
        before = _stored(self._client)
        new = [user for user in range(users) if user not in self._digests]
        self._digests |= {user: self._composed(user) for user in new}
        grown = (_stored(self._client) - before) / max(len(new), 1)
        people = {user: self._person(user, self._digests[user]) for user in range(users)}
        askers = loading.LoadGenerator(self._url, self._oracle, people)
        self._say(f"{users} users, {asking.requests} requests")
        seen, _ = measured(askers, self._head, users, asking, self._say)
        return replace(seen, bytes_per_user=grown)

    def echoed(self, asking: loading.LoadPlan) -> LoadFigures:
        """The same requests of the first user, answered by a deployment that does no work; to be
        called after the server has ended."""
        answer = self._oracle.answer(0)
        right = Expected(self._oracle.encoded, answer)
        with echoing(free_port(), answer) as url:
            askers = loading.LoadGenerator(url, right, {0: self._person(0, MODEL)})
            askers.ask(loading.LoadPlan(asking.at_once, asking.at_once))  # imports everything
            return measured(askers, self._head, 1, asking)[0]

    def cold(self, user: int) -> float:
        """Seconds from composing a new recipe to its first answer."""
        started = time.perf_counter()
        people = {user: self._person(user, self._composed(user))}
        loading.LoadGenerator(self._url, self._oracle, people).ask(loading.LoadPlan(1, 1))
        return time.perf_counter() - started

    def _person(self, user: int, digest: str) -> loading.Person:
        return loading.Person(f"u{user}", self._token, digest)

    def _composed(self, user: int) -> str:
        return self._client.compose(f"u{user}", loading.terms_of(loading.recipe_of(user))).digest


def _stored(client: Client) -> int:
    """Bytes of the registry's tables, without its log, which has copies of pages for a while."""
    with closing(sqlite3.connect(client.home.path / "registry.sqlite")) as db:
        figures = [db.execute(f"PRAGMA page_{what}").fetchone()[0] for what in ("count", "size")]
    return math.prod(figures)


# -- the passes alone


@torch.no_grad()
def passes(oracle: loading.Oracle, rounds: int, say: Say) -> dict[str, float]:
    """Rows per second of one batch: one model for all rows by the dual forward, a loop over users
    with a model each, and all users mixed in one pass."""
    backbone, module = oracle.backbone, oracle.module
    items = [oracle.items[row % len(oracle.items)] for row in range(ROWS)]
    batch: Any = backbone.collate(items)
    recipes = [loading.recipe_of(row) for row in range(ROWS)]
    module.load_tau(summed(recipes[0], oracle.taus))
    mixed = MultiRecipeEncoder(backbone.encoder, backbone.trainable, oracle.taus)
    runs = {
        "one model": lambda: module.linearized(batch),
        "mixed": lambda: mixed(batch, [(recipe, 1) for recipe in recipes]),
        "a loop over 8 users": lambda: [
            alone(module, batch[row : row + 1], recipes[row], oracle.taus) for row in range(8)
        ],
    }
    times = in_turns(runs, rounds, "cpu", say)
    rows = {"one model": ROWS, "mixed": ROWS, "a loop over 8 users": 8}
    return {name: rows[name] / times.median(name) for name in runs}


@dataclass(frozen=True)
class ServingReport:
    """All results of a run."""

    rows_per_second: dict[str, float]  # of passes without a server
    share: float  # of the speed of one model for all rows
    at_once: int
    mistakable: int  # of 1,000 pairs of users
    loads: list[LoadFigures]
    echo: LoadFigures
    soak: LoadFigures | None = None
    vectors: int = loading.VECTORS
    of_each: int = loading.OF_EACH


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def bench_alone(
    users: Sequence[int],
    asking: loading.LoadPlan,
    soak: loading.LoadPlan | None,
    rounds: int,
    say: loading.Say,
) -> ServingReport:
    """The load of each number of users and, with `soak`, of the largest while replicas are killed;
    all in a folder that is deleted afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        say("making vectors")
        population = founded(Path(folder) / "home", loading.VECTORS)
        with own_cluster(population.home.path, lambda new: new.up(cpus=CPUS)) as client:
            oracle = loading.Oracle(population, pictures_of(PICTURES))
            say("passes without a server")
            torch.set_num_threads(1)
            rates = passes(oracle, rounds, lambda done, total: None)
            loads = Loads(client, client.serve(port=free_port()).url, oracle, say)
            found = [
                replace(loads.load(count, asking), cold=loads.cold(COLD + count)) for count in users
            ]
            soaked = loads.load(max(users), soak) if soak else None
            client.stop_serving()
            echo = loads.echoed(asking)
    share, mistakable = rates["mixed"] / rates["one model"], oracle.mistakable(1000)
    return ServingReport(rates, share, asking.at_once, mistakable, found, echo, soaked)


LOADS = ("users", "requests", "per second", "processor ms", "p50 ms", "p95 ms", "p99 ms")
LOADS += ("longest ms", "cold recipe ms", "registry bytes per user", "wrong answers")


def written(found: ServingReport, command: str) -> str:
    """The results as Markdown."""
    rates = found.rows_per_second.items()
    parts = [
        "# Asking over HTTP",
        f"Embedded base model, {found.vectors} made-up vectors, {found.of_each} in every "
        f"recipe, another recipe for every user. `{command}` makes this. Times are of the machine "
        "and what else ran on it; ratios are of one run, and processor time is what the server's "
        "processes used for a request, all together.",
        f"## Passes without a server, {ROWS} rows, one thread",
        markdown_table(
            ("what", "rows per second"), [(name, f"{rate:.1f}") for name, rate in rates]
        ),
        f"{ROWS} users in one pass reach {found.share:.2f} of one model for all rows: "
        f"{found.share * (2 + found.of_each) / 3:.2f} of 3/(2 + k), what products of every vector "
        "could reach.",
        f"## Requests of one picture, {found.at_once} at once, one predictor",
        markdown_table(LOADS, [_row(one) for one in found.loads]),
        "An answer is right when it names its user and their model, and every probability is that "
        "of the user's own model, recomputed from cached tangents. Without the names, "
        f"{found.mistakable} of 1,000 pairs of users could be given each other's answers "
        "unnoticed.",
        *_beside(found),
        *(_soak(found.soak) if found.soak else ()),
    ]
    return "\n\n".join(parts) + "\n"


def _row(one: LoadFigures) -> tuple[str, ...]:
    times = map(_ms, (one.cpu, one.p50, one.p95, one.p99, one.longest, one.cold))
    grown = f"{one.bytes_per_user:.0f}" if one.users > 1 else "-"  # tables grow by pages
    rate = f"{one.per_second:.1f}"
    return f"{one.users}", f"{one.requests}", rate, *times, grown, f"{one.wrong}"


def _beside(found: ServingReport) -> list[str]:
    """The server, compared with a deployment that does no work."""
    ours, echo = found.loads[-1], found.echo
    row_s = 1 / found.rows_per_second["mixed"]  # of a pass, on one thread
    around = ((ours.cpu or 0) - row_s) / (echo.cpu or math.nan)
    columns = ("what", "per second", "processor ms", "p50 ms", "p99 ms")
    rows = [
        (what, f"{one.per_second:.1f}", *map(_ms, (one.cpu, one.p50, one.p99)))
        for what, one in ((f"our server, {ours.users} users", ours), ("echo", echo))
    ]
    return [
        "## Beside a bare deployment of Ray Serve",
        "The same requests in the same run, answered at once with the same probabilities, and "
        "nothing else, by a deployment that does no work, with our ingress's options.",
        markdown_table(columns, rows),
        f"Around the pass ({_ms(row_s)} ms a row) our server takes {around:.2f} times the "
        "processor time of the echo.",
    ]


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.0f}"


def _soak(one: LoadFigures) -> list[str]:
    killed = ", ".join(f"{n} of the {name}" for name, n in one.killed.items())
    again = ", ".join(f"{n} times {why}" for why, n in sorted(one.again.items())) or "nothing"
    return [
        "## Replicas killed while they answer",
        f"{one.requests:,} requests of {one.users:,} users about {one.answers:,} "
        f"pictures, every answer checked; replicas killed (SIGKILL): {killed or 'none'}. "
        f"**Wrong answers: {one.wrong}.** "
        f"{one.per_second:.1f} requests per second, p50 {_ms(one.p50)} ms, p99 "
        f"{_ms(one.p99)} ms, the longest {_ms(one.longest)} ms, asking again included. "
        f"Told that there is no answer now, and asked again: {again}.",
    ]
