"""Limits on how much of a server one user may take, so that nobody keeps the others out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import Request

from cluster.reading.shares import HourlyLimiter
from tacl.errors import Overloaded, TooMany


class ConcurrencyLimiter:
    """Limits what may be held at the same time: `each` by one user, `all` together. For one process
    and one thread: nothing is awaited between checking a count and raising it."""

    def __init__(self, what: str, each: int, all: int) -> None:
        self._what, self._each, self._all = what, each, all
        self._held: Counter[str] = Counter()  # only users who hold something

    @contextmanager
    def held(self, user: str) -> Iterator[None]:
        """Hold one for as long as the block runs. Raises TooMany if the user has `each`, Overloaded
        if all users together have `all`."""
        self.take(user)
        try:
            yield
        finally:
            self.free(user)

    def take(self, user: str, amount: int = 1) -> None:
        """Take `amount`, until `free`. Raises what `held` raises."""
        if self._held[user] + amount > self._each:
            raise TooMany(
                f"{user} has {self._each} {self._what} already; wait until one has ended", 1
            )
        if self._held.total() + amount > self._all:
            raise Overloaded(f"there are {self._all} {self._what} already; try again later")
        self._held[user] += amount

    def free(self, user: str, amount: int = 1) -> None:
        self._held[user] -= amount
        if not self._held[user]:
            del self._held[user]


class Shares:
    """The limits of one server process."""

    def __init__(self) -> None:
        self.requests = ConcurrencyLimiter("requests under way", each=64, all=1000)
        self.listeners = ConcurrencyLimiter("listeners", each=8, all=64)
        # Received in bodies; those of an admin are not counted, here and below.
        self.bytes = HourlyLimiter(8 << 30)
        self.terms = HourlyLimiter(20_000)  # of recipes; each is stored in half a kilobyte or more
        held = "bytes of requests in memory"
        self.bodies = ConcurrencyLimiter(held, each=256 << 20, all=512 << 20)


def shares_of(request: Request) -> Shares:
    return request.app.state.shares
