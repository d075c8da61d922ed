"""Every call of a user, a learner, the page and a server, in an order in which none affects the
next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from cluster.api.access import hashed
from cluster.coordinator.core import Coordinator
from cluster.reading.reader import Reader
from cluster.storage.home import Home
from jobs.benchmarks.calls import NOBODY, Call, Turns, each
from jobs.benchmarks.people import accounts, models
from jobs.benchmarks.population import Population
from jobs.benchmarks.trainings import changes, trainings

UNMEASURED = {  # methods of the coordinator, and why they have no goal
    "references": "it tells `tacl doctor` of every file of a home",
    "collect": "it looks at every file of a home; how long it holds the lock is told with the fits",
}


def calls(population: Population, coordinator: Coordinator, rounds: int) -> Iterator[Call]:
    asking = Turns(population, rounds)
    yield from models(asking, coordinator)
    yield from accounts(asking, coordinator)
    yield from _tasks(asking, coordinator)
    yield from _page(asking, coordinator)
    yield from _server(asking)
    yield from trainings(asking, coordinator)
    yield Call("page", "status after arrivals", lambda row: coordinator.status(asking.whose[row]))
    yield from changes(asking, coordinator)


def _tasks(asking: Turns, call: Coordinator) -> Iterator[Call]:
    whose, tasks = asking.whose, asking.tasks
    versions = 1, asking.versions
    yield Call("user", "task", each(call.task, whose, tasks))
    yield Call("user", "logs", each(call.logs, whose, tasks))
    yield Call("user", "vectors", each(call.vectors, whose, tasks))
    yield Call("user", "compare", lambda row: call.compare(whose[row], tasks[row], *versions))
    yield Call("user", "aliases", each(call.aliases, whose, tasks))
    yield Call("user", "move an alias", asking.moves(call.move_alias, "stable"))
    yield Call("user", "interference of a task", each(call.interference_of, whose, tasks))
    yield Call("user", "status of a task", lambda row: call.status(whose[row], "", [tasks[row]]))


def _page(asking: Turns, call: Coordinator) -> Iterator[Call]:
    whose = asking.whose
    yield Call("page", "all users, a page", lambda row: call.users(NOBODY, None, asking.users[row]))
    yield Call("page", "status, the first part", lambda row: call.status(whose[row]))
    yield Call("page", "interference", lambda row: call.interference(whose[row]))
    yield Call("page", "nothing is new", lambda _: call.version())
    yield Call("page", "cluster", lambda _: call.cluster())
    yield Call("page", "figures", lambda _: call.figures())


def _server(asking: Turns) -> Iterator[Call]:
    """Reads of the registry in a server's process, beside the coordinator of the same home."""
    users, whose, tasks = asking.users, asking.whose, asking.tasks
    pages = [(None, f"{task}@v1") for task in tasks]  # of the vectors of all tasks, after this one
    with closing(opened(asking.population.home)) as reader:
        yield Call("server", "whose token", lambda row: reader.holders([hashed(users[row])]))
        yield Call("server", "model of a user", lambda row: reader.compositions([users[row]]))
        yield Call("server", "models that are one's own", each(reader.users, whose, users))
        yield Call("server", "all users, a page", lambda at: reader.users(NOBODY, None, users[at]))
        yield Call("server", "vectors", each(reader.vectors, whose, tasks))
        yield Call("server", "vectors, a page", lambda at: reader.vectors(whose[at], *pages[at]))


def opened(home: Home) -> Reader:
    """A reader that has already read what its answers need beside the registry."""
    reader = Reader(home, note=lambda hashes: None)
    reader.compositions([])
    return reader
