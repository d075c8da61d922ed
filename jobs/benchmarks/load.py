"""Many users query over HTTP, each with a recipe of their own; replicas may be killed meanwhile.

Every answer is compared with that of the user's own model, recomputed from cached tangents by
additions, without a pass of the server. Requests answered "not now" are repeated and counted.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, Protocol

import httpx2

from cluster.domain.tasks import VectorRef
from cluster.learner.artifacts import Materials
from jobs.benchmarks.population import Population, Say
from jobs.benchmarks.processes import replicas
from tacl.evaluation.tangents import cached_tangents
from tacl.heads.columns import Columns

VECTORS = 8
OF_EACH = 4  # vectors in a recipe
CLOSE = 1e-4  # tolerance between a probability and the recomputed one
PATIENCE = 120.0  # seconds within which an answer must come
VICTIMS = ("predictor", "predictor", "ingress")  # deployments whose replicas are killed, in turn

Expected = dict[str, dict[str, float]]  # task -> class -> probability


def recipe_of(user: int) -> dict[str, float]:
    """A different recipe for every user: which vectors, and their coefficients."""
    choose = random.Random(user)
    tasks = choose.sample(range(VECTORS), OF_EACH)
    return {f"t{t}": round(choose.uniform(0.1, 1.5), 6) for t in sorted(tasks)}


def terms_of(recipe: Mapping[str, float]) -> list[str]:
    """Terms with pinned versions: a refresh meanwhile makes another version the champion."""
    return [f"+{coefficient}*{task}@v1" for task, coefficient in recipe.items()]


class Right(Protocol):
    """Pictures as they are sent, and which answers to them are right."""

    encoded: Sequence[str]

    def is_right(self, user: int, picture: int, answer: Mapping[str, Any]) -> bool: ...


class Oracle:
    """The right answers to each picture: every probability, for a model whose vectors are all in
    `refs` (default: those of every task); for any other, only which tasks answer. `recipe`: of a
    user."""

    def __init__(
        self,
        population: Population,
        pictures: Sequence[bytes],
        refs: Iterable[VectorRef] = (),
        recipe: Callable[[int], Mapping[str, float]] = recipe_of,
    ) -> None:
        materials = Materials(population.home, population.base)
        every = (population.reference(shard.ordinal, 1) for shard in population.shards)
        known = {ref.task: ref for ref in refs or every}
        self.taus = {task: materials.vector(ref).to_params() for task, ref in known.items()}
        self.heads = {task: materials.head(ref.head_blob) for task, ref in known.items()}
        self.backbone, self.module = materials.backbone, materials.linearized()
        self.items = [self.backbone.prepare(raw) for raw in pictures]
        self.encoded: Sequence[str] = [base64.b64encode(raw).decode() for raw in pictures]
        self._cached = cached_tangents(self.module, self.backbone, self.items, self.taus)
        self._recipe, self.expected = cache(recipe), cache(self._expected)

    def _expected(self, user: int) -> list[Expected]:
        recipe = self._recipe(user)
        features_ND = self._cached.linearized(recipe)
        columns = Columns({task: self.heads[task] for task in recipe})
        shares = {task: found.tolist() for task, found in columns.joint(features_ND).items()}
        return [
            {t: dict(zip(self.heads[t].classes, shares[t][row], strict=True)) for t in recipe}
            for row in range(len(features_ND))
        ]

    def is_right(self, user: int, picture: int, answer: Mapping[str, Any]) -> bool:
        """Whether it is right; `answer`: {task: [[class, probability], ...]}."""
        tasks = self._recipe(user).keys()
        if tasks <= self.heads.keys():
            return is_close(self.expected(user)[picture], answer)
        return answer.keys() == tasks

    def answer(self, user: int) -> dict[str, Any]:
        """The answer to the first picture, as a server sends it."""
        told = self.expected(user)[0].items()
        return {task: [[*one] for one in shares.items()] for task, shares in told}

    def mistakable(self, pairs: int) -> int:
        """How many of `pairs` pairs of users might get each other's answer unnoticed."""
        others = ((user, self.answer((user + 1) % pairs)) for user in range(pairs))
        return sum(self.is_right(user, 0, answer) for user, answer in others)


def is_close(expected: Expected, answer: Mapping[str, Any]) -> bool:
    return answer.keys() == expected.keys() and all(
        dict(ranked).keys() == expected[task].keys()
        and all(abs(expected[task][name] - share) <= CLOSE for name, share in ranked)
        for task, ranked in answer.items()
    )


@dataclass(frozen=True)
class LoadPlan:
    """Requests of `pictures` pictures each; `kills` replicas are killed at even intervals."""

    requests: int
    at_once: int
    pictures: int = 1
    kills: int = 0


@dataclass
class LoadResult:
    """Of answered requests: seconds of each, and how many answers were wrong."""

    latencies: list[float] = field(default_factory=list)
    wrong: int = 0
    again: Counter[str] = field(default_factory=Counter)  # why requests were repeated
    killed: Counter[str] = field(default_factory=Counter)


class Person(NamedTuple):
    """A user, their token, and the digest of their model."""

    name: str
    token: str
    digest: str


class LoadGenerator:
    """Requests to `url`: users in turn, or in the `order` of their numbers, each about the next
    pictures."""

    def __init__(
        self,
        url: str,
        oracle: Right,
        people: Mapping[int, Person],
        order: Sequence[int] | None = None,
    ) -> None:
        self._url, self._oracle, self._people = url, oracle, people
        self._order = order or list(people)

    def ask(self, work: LoadPlan, head: int = 0, say: Say = print) -> LoadResult:
        """Make the requests. The replicas that are killed are below the process `head`.

        Raises TimeoutError if a request gets no answer for two minutes.
        """
        return asyncio.run(self._ask(work, head, say))

    async def _ask(self, work: LoadPlan, head: int, say: Say) -> LoadResult:
        tally, numbers = LoadResult(), iter(range(work.requests))
        limits = httpx2.Limits(max_connections=work.at_once)
        http = httpx2.AsyncClient(timeout=PATIENCE, limits=limits)
        async with http, asyncio.TaskGroup() as group:
            for _ in range(work.at_once):
                group.create_task(self._asker(http, numbers, work.pictures, tally))
            group.create_task(_killer(tally, work, head, say))
        return tally

    async def _asker(
        self, http: httpx2.AsyncClient, numbers: Iterator[int], count: int, tally: LoadResult
    ) -> None:
        for number in numbers:
            user = self._order[number % len(self._order)]
            chosen = [(number + row) % len(self._oracle.encoded) for row in range(count)]
            started = time.perf_counter()
            told = await self._told(http, user, chosen, tally)
            tally.latencies.append(time.perf_counter() - started)
            tally.wrong += self._wrong(user, chosen, told)

    def _wrong(self, user: int, pictures: Sequence[int], told: Mapping[str, Any]) -> int:
        """How many of the answers are wrong."""
        person = self._people[user]
        own = (told["user"], told["digest"]) == (person.name, person.digest)
        answers = told["answers"]
        if not own or len(answers) != len(pictures):
            return len(pictures)
        right = map(self._oracle.is_right, [user] * len(pictures), pictures, answers)
        return len(pictures) - sum(right)

    async def _told(
        self, http: httpx2.AsyncClient, user: int, pictures: Sequence[int], tally: LoadResult
    ) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    found = await self._sent(http, self._people[user], pictures)
                except httpx2.TransportError as error:
                    tally.again[type(error).__name__] += 1
                else:
                    if found.status_code < 500:
                        return found.raise_for_status().json()
                    tally.again[str(found.status_code)] += 1
                await asyncio.sleep(0.2)

    async def _sent(
        self, http: httpx2.AsyncClient, person: Person, pictures: Sequence[int]
    ) -> httpx2.Response:
        inputs = [{"image": self._oracle.encoded[picture]} for picture in pictures]
        body = {"user": person.name, "inputs": inputs, "seconds": 60}
        return await http.post(f"{self._url}/v1/predict", json=body, headers=_bearer(person))


class Readers(LoadGenerator):
    """Requests that only read the registry: GET of `path`, with the user's name in it."""

    def __init__(self, url: str, path: str, *given: Any) -> None:
        super().__init__(url, *given)
        self._path = path

    def _wrong(self, user: int, pictures: Sequence[int], told: Mapping[str, Any]) -> int:
        """1 if the answer is about another model."""
        return self._people[user].digest not in json.dumps(told)

    async def _sent(
        self, http: httpx2.AsyncClient, person: Person, pictures: Sequence[int]
    ) -> httpx2.Response:
        path = self._path.format(user=person.name)
        return await http.get(f"{self._url}{path}", headers=_bearer(person))


def _bearer(person: Person) -> dict[str, str]:
    return {"authorization": f"Bearer {person.token}"}


async def _killer(tally: LoadResult, work: LoadPlan, head: int, say: Say) -> None:
    for kill in range(work.kills):
        due = work.requests * (kill + 1) // (work.kills + 1)
        while len(tally.latencies) < due:
            await asyncio.sleep(0.02)
        victim = VICTIMS[kill % len(VICTIMS)]
        while not (pids := await asyncio.to_thread(replicas, head, victim)):
            await asyncio.sleep(0.2)  # the one that was killed last is not back yet
        os.kill(pids[0], signal.SIGKILL)
        tally.killed[victim] += 1
        said = f"{due} of {work.requests} requests answered, {tally.wrong} answers wrong"
        say(f"{said}; a replica of the {victim} killed ({kill + 1})")
