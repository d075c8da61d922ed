"""A call of the control plane and what it costs, as benches make them; and who asks it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Concatenate, NamedTuple

import numpy as np
from pydantic_core import to_json

from cluster.domain.base import RequestContext
from cluster.domain.tasks import ANY
from jobs.benchmarks.population import Population

NOBODY = RequestContext()

Ask = Callable[[int], object]  # the row-th time
Method = Callable[Concatenate[RequestContext, str, ...], object]


class Call(NamedTuple):
    """`rare`: a tenth of the rounds is enough for it."""

    who: str
    what: str
    ask: Ask
    rare: bool = False


class Spread(NamedTuple):
    median: float
    p99: float


@dataclass(frozen=True)
class CallCost:
    """Of one call: milliseconds by the clock and of the processor, and bytes of the answer as
    JSON."""

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
    for row in range(max(1, rounds // 10) if call.rare else rounds):
        start, busy = time.perf_counter(), time.process_time()
        answer = call.ask(row)
        taken, worked = time.perf_counter() - start, time.process_time() - busy
        found.append((1000 * taken, 1000 * worked, len(to_json(answer, fallback=str))))
    return CallCost(call.who, call.what, *map(_spread, zip(*found, strict=True)))


def _spread(values: Sequence[float]) -> Spread:
    worst = np.quantile(values, 0.99, method="higher")
    return Spread(statistics.median(values), float(worst))


class Turns:
    """By round, whose turn it is and what about: drawn, the same in every bench."""

    def __init__(self, population: Population, rounds: int) -> None:
        chosen = np.random.default_rng(0)
        self.population, self.rounds = population, rounds
        self.seen = [shard.task for shard in population.open]
        self.tasks = [self.seen[n] for n in chosen.integers(0, len(self.seen), rounds)]
        self.users = [population.user(n) for n in chosen.integers(0, population.models, rounds)]
        self.whose = [RequestContext(user=user, limited=True) for user in self.users]
        self.versions = len(population.tasks[0].vectors)
        self.moved = [int(n) for n in chosen.integers(1, self.versions + 1, rounds)]

    def new(self, row: int, verb: str) -> RequestContext:
        """A request that changes something, of the user of this round."""
        return RequestContext(user=self.users[row], limited=True, request_id=f"bench: {verb} {row}")

    def admin(self, row: int, verb: str) -> RequestContext:
        return RequestContext(request_id=f"bench: {verb} {row}")

    def terms(self, row: int) -> list[str]:
        return [f"+{one}" for one in sorted({*self.tasks[row : row + 5]})]

    def own(self, method: Method) -> Ask:
        return lambda row: method(self.whose[row], self.users[row])

    def changed(self, verb: str, method: Method) -> Ask:
        return lambda row: method(self.new(row, verb), self.users[row])

    def of_task(self, method: Method) -> Ask:
        return lambda row: method(self.whose[row], self.tasks[row])

    def moves(self, move_alias: Callable[..., object], name: str) -> Ask:
        return lambda row: move_alias(
            self.new(row, f"move {name}"), self.tasks[row], name, self.moved[row], ANY
        )
