"""Every call of a user, a learner and the page, as benches of the control plane make them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Concatenate, NamedTuple

import numpy as np
from pydantic import BaseModel

from cluster.api.access import hashed
from cluster.coordinator.core import Coordinator
from cluster.domain.base import RequestContext
from cluster.domain.tasks import ANY
from cluster.domain.work import Lease, Leave, Progress
from cluster.storage.samples import store_shard
from jobs.benchmarks.population import Population

NOBODY = RequestContext()

Ask = Callable[[int], object]  # the row-th time
Changes = Callable[Concatenate[RequestContext, str, ...], object]


class Call(NamedTuple):
    who: str
    what: str
    ask: Ask


class Spread(NamedTuple):
    median: float
    p99: float


@dataclass(frozen=True)
class Cost:
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


def cost(call: Call, rounds: int) -> Cost:
    found = list[tuple[float, float, int]]()
    for row in range(rounds):
        start, busy = time.perf_counter(), time.process_time()
        answer = call.ask(row)
        taken, worked = time.perf_counter() - start, time.process_time() - busy
        found.append((1000 * taken, 1000 * worked, len(_json(answer))))
    return Cost(call.who, call.what, *map(_spread, zip(*found, strict=True)))


def _spread(values: Sequence[float]) -> Spread:
    worst = np.quantile(values, 0.99, method="higher")
    return Spread(statistics.median(values), float(worst))


def _json(answer: object) -> str:
    if isinstance(answer, BaseModel):
        return answer.model_dump_json()
    if isinstance(answer, list | tuple):
        return "[" + ",".join(map(_json, answer)) + "]"
    return str(answer)


def calls(population: Population, coordinator: Coordinator, rounds: int) -> Iterator[Call]:
    """In an order in which none disturbs the next."""
    chosen = np.random.default_rng(0)
    seen = [shard.task for shard in population.open]
    tasks = [seen[n] for n in chosen.integers(0, len(seen), rounds)]
    users = [population.user(n) for n in chosen.integers(0, population.models, rounds)]
    whose = [RequestContext(user=user, limited=True) for user in users]
    moved = chosen.integers(1, len(population.tasks[0].vectors) + 1, rounds)
    call = coordinator

    def new(row: int, verb: str) -> RequestContext:
        return RequestContext(user=users[row], limited=True, request_id=f"bench: {verb} {row}")

    def admin(row: int) -> RequestContext:
        return RequestContext(request_id=f"bench: purge {row}")

    def own(method: Changes) -> Ask:
        return lambda row: method(whose[row], users[row])

    def changed(verb: str, method: Changes) -> Ask:
        return lambda row: method(new(row, verb), users[row])

    def of_task(method: Changes) -> Ask:
        return lambda row: method(whose[row], tasks[row])

    def move(verb: str, name: str) -> Ask:
        return lambda row: call.move_alias(new(row, verb), tasks[row], name, int(moved[row]), ANY)

    def compose(row: int) -> object:
        terms = [f"+{one}" for one in sorted({*tasks[row : row + 5]})]
        return call.compose(new(row, "compose"), users[row], terms)

    yield Call("user", "whose token", lambda row: call.holder(hashed(users[row])))
    yield Call("user", "composition", own(call.composition))
    yield Call("user", "models that are one's own", own(call.users))
    yield Call("user", "compose", compose)
    yield Call("user", "update", changed("update", call.update_composition))
    yield Call("user", "evaluate", changed("evaluate", call.evaluate))
    yield Call("user", "cancel", changed("cancel", call.cancel_compositions))
    yield Call("user", "accuracies", own(call.accuracy_history))
    yield Call("user", "usage", lambda row: call.usage(users[row]))
    yield Call("user", "task", of_task(call.task))
    yield Call("user", "logs", of_task(call.logs))
    yield Call("user", "vectors", of_task(call.vectors))
    yield Call("user", "aliases", of_task(call.aliases))
    yield Call("user", "move an alias", move("move", "stable"))
    yield Call("user", "all users, a page", lambda row: call.users(NOBODY, None, users[row]))
    yield Call("page", "status, the first part", lambda row: call.status(whose[row]))
    yield Call("page", "interference", lambda row: call.interference(whose[row]))
    yield Call("user", "interference of a task", of_task(call.interference_of))
    yield Call("page", "nothing is new", lambda _: call.version())
    yield from _arrivals(population, coordinator, whose)
    yield Call("page", "status after arrivals", lambda row: call.status(whose[row]))
    yield Call("user", "move the champion", move("crown", "champion"))
    yield Call("user", "purge", lambda row: call.remove(admin(row), seen[-1 - row], purge=True))


def _arrivals(
    population: Population, coordinator: Coordinator, whose: list[RequestContext]
) -> Iterator[Call]:
    """Tasks that are submitted, and what the run of the first asks."""
    rounds, begun = len(whose), list[str]()
    blob = store_shard(population.home.blobs(), ["one", "other"], [False, True])
    run_id = coordinator.submit(NOBODY, population.newcomer("first", blob)).run_id
    since = _version(coordinator)

    def lease(row: int) -> Leave:
        progress = Progress(step=row, steps=rounds, loss=1.0, penalty=0.5)
        asked = Lease(run_id=run_id, first=row, last=row, since=row - 1, progress=progress)
        return coordinator.lease(asked)

    def news(row: int) -> object:
        nonlocal since
        lease(heard + rounds + row)
        told = coordinator.status(whose[row], since)
        since = told.version
        return told

    def submit(row: int) -> object:
        told = coordinator.submit(NOBODY, population.newcomer(f"new{row}", blob))
        begun.append(told.run_id)
        return told

    def first_lease(row: int) -> object:
        return coordinator.lease(Lease(run_id=begun[row], first=0, last=0, since=-1))

    heard = 0
    while lease(heard).arrivals:  # of everybody, a page at a time
        heard += 1
    yield Call("learner", "lease", lambda row: lease(heard + row))
    yield Call("page", "a lease, and what is new", news)
    yield Call("user", "submit", submit)
    yield Call("learner", "the first lease", first_lease)
    yield Call("user", "run", lambda row: coordinator.run(NOBODY, run_id))


def _version(coordinator: Coordinator) -> str:
    told = coordinator.status(NOBODY)
    while told.more:
        told = coordinator.status(NOBODY, told.version)
    return told.version
