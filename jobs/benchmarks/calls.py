"""A call of the control plane and its cost, as benches make them, and its callers."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from pydantic_core import to_json

from cluster.domain.base import RequestContext
from cluster.domain.tasks import ANY
from jobs.benchmarks.population import Population

NOBODY = RequestContext()

Ask = Callable[[int], object]  # the row-th time


class Call(NamedTuple):
    """`rare`: a tenth of the rounds is enough; `most`: how often it can be made."""

    who: str
    what: str
    ask: Ask
    rare: bool = False
    most: int = sys.maxsize


class Spread(NamedTuple):
    median: float
    p99: float


@dataclass(frozen=True)
class CallCost:
    """The cost of one call: milliseconds of wall clock and CPU, and bytes of the answer as JSON."""

    who: str
    what: str
    clock: Spread
    cpu: Spread
    bytes: Spread

    @property
    def name(self) -> str:
        return f"{self.who}: {self.what}"


def cost(call: Call, rounds: int) -> CallCost:
    found = list[tuple[float, float, int]]()
    for row in range(min(call.most, max(1, rounds // 10) if call.rare else rounds)):
        start, busy = time.perf_counter(), time.process_time()
        answer = call.ask(row)
        taken, worked = time.perf_counter() - start, time.process_time() - busy
        found.append((1000 * taken, 1000 * worked, len(to_json(answer, fallback=str))))
    return CallCost(call.who, call.what, *map(_spread, zip(*found, strict=True)))


def _spread(values: Sequence[float]) -> Spread:
    worst = np.quantile(values, 0.99, method="higher")
    return Spread(statistics.median(values), float(worst))


def each(method: Callable[..., object], *columns: Sequence[object], **named: object) -> Ask:
    """Calls with the elements of the columns for the round; `named` are the same in all rounds."""
    return lambda row: method(*(column[row] for column in columns), **named)


class Turns:
    """The user, task and other arguments of each round: drawn, the same in every bench."""

    def __init__(self, population: Population, rounds: int) -> None:
        chosen = np.random.default_rng(0)
        self.population, self.rounds = population, rounds
        self.seen = [shard.task for shard in population.open]
        self.tasks = [self.seen[n] for n in chosen.integers(0, len(self.seen), rounds)]
        self.users = [population.user(n) for n in chosen.integers(0, population.models, rounds)]
        self.whose = [RequestContext(user=user, limited=True) for user in self.users]
        self.versions = len(population.tasks[0].vectors)
        self.moved = [int(n) for n in chosen.integers(1, self.versions + 1, rounds)]
        some = [sorted({*self.tasks[row : row + 5]}) for row in range(rounds)]
        self.terms = [[f"+{task}" for task in tasks] for tasks in some]
        self.names = [f"new{row}" for row in range(rounds)]  # of new tasks and users

    def new(self, verb: str) -> list[RequestContext]:
        """Requests of the user of each round, with ids, as for calls that change something."""
        asked = zip(self.whose, self.admin(verb), strict=True)
        return [of.model_copy(update={"request_id": one.request_id}) for of, one in asked]

    def admin(self, verb: str) -> list[RequestContext]:
        return [RequestContext(request_id=f"bench: {verb} {row}") for row in range(self.rounds)]

    def moves(self, move_alias: Callable[..., object], name: str) -> Ask:
        new = self.admin(f"move {name}")  # the tasks have other owners
        return lambda row: move_alias(new[row], self.tasks[row], name, self.moved[row], ANY)
