"""What one user may take of what all share, and what a request is looked at for."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import ExitStack

import pytest

from cluster.api import limits
from cluster.api.shares import ConcurrencyLimiter
from cluster.reading.shares import HOUR, HourlyLimiter
from tacl.errors import Overloaded, TooMany


def test_an_hour_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    hourly, now = HourlyLimiter(10), [0.0]
    monkeypatch.setattr("cluster.reading.shares.time.monotonic", lambda: now[0])
    hourly.require("ann", 10, "bytes")
    now[0] = 100.0
    with pytest.raises(TooMany, match="10 bytes an hour") as refused:
        hourly.require("ann", 1, "bytes")
    assert refused.value.seconds == HOUR - 100
    hourly.require("bob", 10, "bytes")
    now[0] = HOUR
    hourly.require("ann", 10, "bytes")


def test_a_request_costs_the_same_with_many_users(monkeypatch: pytest.MonkeyPatch) -> None:
    hourly, now = HourlyLimiter(10), [0.0]
    monkeypatch.setattr("cluster.reading.shares.time.monotonic", lambda: now[0])

    def seconds(count: int) -> float:
        begun = time.thread_time()
        for number in range(count):
            hourly.require(f"user {number}", 1, "bytes")
        return time.thread_time() - begun

    few = min(seconds(1000) for _ in range(3))
    seconds(10_000)
    assert min(seconds(1000) for _ in range(3)) < 20 * few  # a walk over all takes hundreds


@pytest.mark.parametrize(("texts", "waits"), [(["x" * 9000], False), (["x" * 9000] * 2, True)])
def test_only_what_may_take_long_is_looked_at_in_a_thread(
    texts: list[str], waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = list[int]()
    monkeypatch.setattr(limits, "weighed", lambda inputs: threads.append(threading.get_ident()))
    asyncio.run(limits.weigh(texts))
    assert (threads != [threading.get_ident()]) is waits


def test_places_are_each_ones_and_everybodys() -> None:
    places = ConcurrencyLimiter("seats", each=2, all=3)
    with ExitStack() as held:
        held.enter_context(places.held("ann"))
        held.enter_context(places.held("ann"))
        with pytest.raises(TooMany, match="ann has 2 seats"), places.held("ann"):
            pass
        held.enter_context(places.held("bob"))
        with pytest.raises(Overloaded, match="there are 3 seats"), places.held("eve"):
            pass
    with places.held("ann"), places.held("ann"), places.held("eve"):
        pass
