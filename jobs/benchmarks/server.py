"""What a server's process reads of the registry itself, beside the coordinator of the same home."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.api.access import hashed
from cluster.reading.reader import Reader
from cluster.storage.home import Home
from jobs.benchmarks.calls import NOBODY, Call, Turns, each


def own_reads(asking: Turns) -> Iterator[Call]:
    home, users, whose = asking.population.home, asking.users, asking.whose
    reader = opened(home)
    try:
        yield Call("server", "whose token", lambda row: reader.holders([hashed(users[row])]))
        yield Call("server", "model of a user", lambda row: reader.compositions([users[row]]))
        yield Call("server", "models that are one's own", each(reader.users, whose, users))
        yield Call(
            "server", "all users, a page", lambda row: reader.users(NOBODY, None, users[row])
        )
        yield Call("server", "vectors", each(reader.vectors, whose, asking.tasks))
        yield Call(
            "server",
            "vectors, a page",
            lambda row: reader.vectors(whose[row], None, f"{asking.tasks[row]}@v1"),
        )
    finally:
        reader.close()


def opened(home: Home) -> Reader:
    """It has read what its answers need beside the registry, as with its first question."""
    reader = Reader(home, note=lambda hashes: None)
    reader.compositions([])
    return reader
