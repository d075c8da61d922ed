"""Many users over many small vectors, answered by few predictors: `tacl bench serve --predictors`.

A home with random vectors and users who have composed; its server with each number of predictors,
whose memory holds a part of the vectors; users drawn uniformly and by Zipf's law; and, in the same
run, an echo of the same payload, once as fast as it can and once as slow as ours. The results are
written by `jobs.benchmarks.predictors_told`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import ceil
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import httpx2
import torch
from prometheus_client.parser import text_string_to_metric_families

from cluster.client.client import Client
from cluster.learner.artifacts import Materials
from cluster.serving.starting import start
from cluster.storage.home import Serving
from jobs.benchmarks import processes
from jobs.benchmarks.echo import HOST, MODEL, Expected, echoing
from jobs.benchmarks.load import LoadGenerator, LoadPlan, Oracle, Person, Readers
from jobs.benchmarks.population import Population, Say
from jobs.benchmarks.residency import drawn
from jobs.benchmarks.scale import CheckedGoal
from jobs.benchmarks.serving import LoadFigures, free_port, measured
from jobs.benchmarks.submit import CPUS as CLUSTER_CPUS
from jobs.benchmarks.synthetic import SMALL, founded, pictures_of
from jobs.benchmarks.timing import machine
from jobs.console.own_cluster import own_cluster
from tacl.errors import ClusterNotRunning

DRAWS = ("zipf", "uniform")
CPUS = 0.5  # reserved by each predictor: four of them fit two CPUs, each with one thread
CHECKED = 8  # users of a draw for whom every probability is checked
PICTURES = 4  # that are queried
STARTING = 300.0  # seconds until all predictors answer
OVERHEAD = 1.5  # times the echo's
READS = ("/v1/compositions/{user}", "/v1/compositions")  # a user's model, and the list of models


@dataclass(frozen=True)
class PredictorsPlan:
    """`part`: the share of the bytes of all vectors that predictors may fill together."""

    predictors: Sequence[int]
    vectors: int
    users: int
    asking: LoadPlan
    part: float


class Occupancy(NamedTuple):
    """One predictor's metrics of its memory."""

    hits: float
    misses: float
    bytes: float


@dataclass(frozen=True)
class PredictorsRow:
    """`cpu`: seconds per request by kind of process; `memory`: bytes by kind, after all requests;
    `found`: the share of vectors and heads that passes found in memory; `resident`: bytes of each
    predictor."""

    predictors: int  # 0 for the echo
    draw: str
    facts: LoadFigures
    cpu: Mapping[str, float]
    memory: Mapping[str, int]
    found: float = 0.0
    resident: Sequence[int] = ()

    @property
    def around(self) -> float:
        """CPU seconds per request of all processes except predictors."""
        return sum(self.cpu.values()) - self.cpu.get("predictor", 0.0)


class ReadRow(NamedTuple):
    """A path that only reads the registry: the server, and echoes of its answer, at once and as
    slow as the server."""

    path: str
    ours: PredictorsRow
    echo: PredictorsRow
    slow: PredictorsRow


@dataclass(frozen=True)
class PredictorsFound:
    """`slow`: for each row an echo with as many requests per second and as many concurrent ones.
    Serve itself takes less for a request if more come: it wakes up once for several."""

    plan: PredictorsPlan
    machine: str
    vector: int  # bytes of one vector
    fill: int  # bytes that predictors may fill together
    rows: Sequence[PredictorsRow]
    echo: PredictorsRow
    slow: Sequence[PredictorsRow]
    reads: Sequence[ReadRow]

    def goals(self) -> list[CheckedGoal]:
        ratios: dict[str, float] = {}
        for row, slow in zip(self.rows, self.slow, strict=True):
            what = f"processor time around predictors ({row.predictors}, {row.draw})"
            ratios[f"{what}, of a slow echo's"] = row.around / slow.around
            ratios[f"{what}, of the echo's"] = row.around / self.echo.around
        for read in self.reads:
            what = f"processor time of GET {read.path.format(user='USER')}"
            ratios[f"{what}, of a slow echo's"] = read.ours.around / read.slow.around
            ratios[f"{what}, of the echo's"] = read.ours.around / read.echo.around
        return [CheckedGoal(what, OVERHEAD, got, got > OVERHEAD) for what, got in ratios.items()]


def bench_predictors(plan: PredictorsPlan, say: Say) -> PredictorsFound:
    """Run the whole bench in a folder that is deleted afterwards."""
    torch.set_num_threads(1)  # the other threads are the predictors'
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        say(f"making {plan.vectors} vectors and models of {plan.users} users")
        population = founded(Path(folder) / "home", plan.vectors, SMALL, plan.users)
        cpus = max(CLUSTER_CPUS, ceil(CPUS * max(plan.predictors)))  # else some would never start
        with own_cluster(population.home.path, lambda new: new.up(cpus=cpus)) as client:
            crowd = Crowd(client, population, plan, say)
            rows = [row for count in plan.predictors for row in crowd.served(count)]
            read = crowd.read()
            beside = crowd.echoed(rows, read)
    return PredictorsFound(plan, machine(), crowd.vector, crowd.fill, rows, *beside)


class Crowd:
    """The users of a population, and the cluster of its home."""

    def __init__(
        self, client: Client, population: Population, plan: PredictorsPlan, say: Say
    ) -> None:
        self._head, self._client = processes.head_of(client.home), client
        self._population, self._plan, self._say = population, plan, say
        self._admin = client.issue_token("loader", "admin").token or ""
        self._pictures = pictures_of(PICTURES)
        materials = Materials(population.home, population.base)
        self.vector = materials.vector(population.reference(1, 1)).nbytes
        self.fill = int(plan.part * plan.vectors * self.vector)

    def served(self, predictors: int) -> list[PredictorsRow]:
        """A row for each draw."""
        with self._serving(predictors) as url:
            return [self._row(url, predictors, draw) for draw in DRAWS]

    def read(self) -> list[tuple[str, PredictorsRow, Any]]:
        """Request the paths of READS, as users drawn uniformly; also returns user 0's answers."""
        asking = self._plan.asking
        users = list(islice(drawn("uniform", self._plan.users, Random(3)), asking.requests))
        people = {user: self._person(user) for user in [0, *users]}
        right, found = sampled(self._population, self._pictures, [0]), []
        with self._serving(1) as url:
            for path in READS:
                self._say(f"GET {path}")
                readers = Readers(url, path, right, people, users)
                readers.ask(self._one_in(2))
                row = self._measured(readers, 0, path)
                headers = {"authorization": f"Bearer {people[0].token}"}
                told = httpx2.get(url + path.format(user=people[0].name), headers=headers)
                found.append((path, row, told.raise_for_status().json()))
        return found

    def echoed(
        self, rows: Sequence[PredictorsRow], read: Sequence[tuple[str, PredictorsRow, Any]]
    ) -> tuple[PredictorsRow, list[PredictorsRow], list[ReadRow]]:
        """The same requests, by the first user, answered at once; then with each row's requests per
        second. To be called after the server has ended."""
        right, one = sampled(self._population, self._pictures, [0]), self._person(0)
        answer = right.answer(0)
        paths = {path.format(user=one.name): told for path, _, told in read}
        expected = Expected(right.encoded, answer)

        def posted(url: str) -> LoadGenerator:
            return LoadGenerator(url, expected, {0: one._replace(digest=MODEL)})

        def got(path: str, url: str) -> LoadGenerator:
            return Readers(url, path, expected, {0: one})

        def slow(row: PredictorsRow, askers: Callable[[str], LoadGenerator]) -> PredictorsRow:
            seconds = self._plan.asking.at_once / row.facts.per_second
            self._say(f"the echo, after {seconds:.2f} s")
            with echoing(free_port(), answer, paths, seconds) as url:
                askers(url).ask(self._one_in(4))
                return self._measured(askers(url), 0, row.draw, asking=self._one_in(4))

        self._say("the echo")
        with echoing(free_port(), answer, paths) as url:
            posted(url).ask(self._one_in(2))
            echo = self._measured(posted(url), 0, "-")
            at_once = [self._measured(got(path, url), 0, path) for path, *_ in read]
        slowly = [slow(row, posted) for row in rows]
        reads = [
            ReadRow(path, ours, fast, slow(ours, partial(got, path)))
            for (path, ours, _), fast in zip(read, at_once, strict=True)
        ]
        return echo, slowly, reads

    def _one_in(self, so_many: int) -> LoadPlan:
        """One in `so_many` requests: one in two warm up; one in four are enough for CPU times of an
        echo that is as slow as ours."""
        asking = self._plan.asking
        return LoadPlan(max(1, asking.requests // so_many), asking.at_once)

    @contextmanager
    def _serving(self, predictors: int) -> Iterator[str]:
        """Serve with this number of predictors; yields the URL."""
        place = {"host": HOST, "port": free_port(), "open_to_all": False}
        each = {"cpus": CPUS, "gpus": 0.0, "memory": self.fill}
        url = start(self._client.home, Serving(most=predictors, **place, **each))
        try:
            self._await(url, predictors)
            yield url
        finally:
            self._client.stop_serving()

    def _await(self, url: str, predictors: int) -> None:
        """Wait for all predictors: Serve starts more than one only under a lasting load."""
        people = {user: self._person(user) for user in range(min(self._plan.users, 100))}
        askers = LoadGenerator(url, sampled(self._population, self._pictures, [0]), people)
        began = time.monotonic()
        self._say(f"waiting for {predictors} predictors")
        while (there := self._answering(url)) < predictors:
            if time.monotonic() - began > STARTING:
                raise ClusterNotRunning(
                    f"{predictors} predictors were to answer and {there} do after {STARTING:g} s; "
                    "is the machine short of memory?"
                )
            askers.ask(LoadPlan(4 * self._plan.asking.at_once, self._plan.asking.at_once))

    def _answering(self, url: str) -> int:
        """How many predictors answer; 0 while Serve's proxy does not listen yet."""
        try:
            return len(self._kept(url))
        except httpx2.ConnectError:
            return 0

    def _row(self, url: str, predictors: int, draw: str) -> PredictorsRow:
        warming = self._one_in(2)
        count, warm = warming.requests + self._plan.asking.requests, warming.requests
        users = list(islice(drawn(draw, self._plan.users, Random(3)), count))
        self._say(f"{predictors} predictors, {draw}: {len(users)} requests")
        some = list(dict.fromkeys(users[warm:]))[:CHECKED]
        right = sampled(self._population, self._pictures, some)
        people = {user: self._person(user) for user in set(users)}
        LoadGenerator(url, right, people, users[:warm]).ask(warming)
        return self._measured(
            LoadGenerator(url, right, people, users[warm:]), predictors, draw, url
        )

    def _measured(
        self,
        askers: LoadGenerator,
        predictors: int,
        draw: str,
        url: str | None = None,
        asking: LoadPlan | None = None,
    ) -> PredictorsRow:
        """`url`: of a server whose predictors report what they have in memory."""
        kept = self._kept(url) if url else {}
        seen, cpu = measured(askers, self._head, self._plan.users, asking or self._plan.asking)
        now = self._kept(url) if url else {}
        memory, resident = processes.memory(self._head), [int(one.bytes) for one in now.values()]
        return PredictorsRow(predictors, draw, seen, cpu, memory, found(kept, now), resident)

    def _person(self, user: int) -> Person:
        name = self._population.user(user)
        return Person(name, name, self._population.composition(user).digest)

    def _kept(self, url: str) -> dict[str, Occupancy]:
        """The memory of each predictor that answers."""
        headers = {"authorization": f"Bearer {self._admin}"}
        answer = httpx2.get(f"{url}/v1/metrics", headers=headers, timeout=60)
        return kept_of(answer.raise_for_status().text)


def sampled(population: Population, pictures: Sequence[bytes], users: Sequence[int]) -> Oracle:
    """Recomputes every probability for the models of these users, before they query."""

    def recipe(user: int) -> dict[str, float]:
        return {one.vector.task: one.coefficient for one in population.composition(user).terms}

    refs = [term.vector for user in users for term in population.composition(user).terms]
    right = Oracle(population, pictures, refs, recipe)
    for user in users:
        right.expected(user)
    return right


def kept_of(metrics: str) -> dict[str, Occupancy]:
    """Memory by predictor, from the text of `/v1/metrics`."""
    told: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if "predictor" in sample.labels:
                told.setdefault(sample.labels["predictor"], {})[sample.name] = sample.value
    names = "tacl_predict_hits_total", "tacl_predict_misses_total", "tacl_predictor_bytes"
    return {predictor: Occupancy(*(one[name] for name in names)) for predictor, one in told.items()}


def found(before: Mapping[str, Occupancy], after: Mapping[str, Occupancy]) -> float:
    """The share of what passes needed, between two readings, that was in memory."""
    none = Occupancy(0, 0, 0)
    hits = sum(one.hits - before.get(name, none).hits for name, one in after.items())
    misses = sum(one.misses - before.get(name, none).misses for name, one in after.items())
    return hits / ((hits + misses) or 1)
