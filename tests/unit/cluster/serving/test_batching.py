"""Questions that share calls: each gets its own answer, whatever happens to the others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from cluster.serving.batching import Gathering
from tacl.errors import BadSample, Overloaded


class Slow:
    """Doubles numbers, one call after the other when `open` lets it; refuses negative ones."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.open = asyncio.Event()

    async def __call__(self, numbers: list[int]) -> list[int | Exception]:
        self.calls.append(numbers)
        await self.open.wait()
        if 13 in numbers:
            raise ConnectionError("the other side died")
        return [BadSample(str(n)) if n < 0 else 2 * n for n in numbers]


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 10))


async def asked(gathering: Gathering[int, int], *numbers: int) -> list[asyncio.Task[int]]:
    tasks = [asyncio.create_task(gathering.ask(number)) for number in numbers]
    await asyncio.sleep(0.01)
    return tasks


def test_what_arrives_during_a_call_goes_in_the_next() -> None:
    async def story() -> None:
        slow = Slow()
        gathering = Gathering(slow, most=3)
        tasks = await asked(gathering, 1)
        tasks += await asked(gathering, 2, 3, 4, 5)
        assert slow.calls == [[1]]
        slow.open.set()
        assert await asyncio.gather(*tasks) == [2, 4, 6, 8, 10]
        assert slow.calls == [[1], [2, 3, 4], [5]]
        assert await gathering.ask(6) == 12

    run(story())


def test_further_calls_leave_only_when_they_are_full() -> None:
    async def story() -> None:
        slow = Slow()
        gathering = Gathering(slow, most=10, weight=lambda number: number, calls=2)
        tasks = await asked(gathering, 1)
        tasks += await asked(gathering, 4, 5)
        assert slow.calls == [[1]]
        tasks += await asked(gathering, 6, 11, 2)
        assert slow.calls == [[1], [4, 5]]
        slow.open.set()
        assert await asyncio.gather(*tasks) == [2, 8, 10, 12, 22, 4]
        assert slow.calls[2:] == [[6], [11], [2]]  # 11 is more than a call holds: it goes alone

    run(story())


def test_an_error_is_told_to_whom_it_concerns() -> None:
    async def story() -> None:
        slow = Slow()
        slow.open.set()
        gathering = Gathering(slow, most=10)
        tasks = await asked(gathering, 1, -2, 3)
        assert (tasks[0].result(), tasks[2].result()) == (2, 6)
        with pytest.raises(BadSample, match="-2"):
            tasks[1].result()
        for task in await asked(gathering, 4, 13):  # the call itself failed
            with pytest.raises(ConnectionError):
                task.result()
        assert await gathering.ask(5) == 10

    run(story())


def test_who_has_given_up_is_not_asked_for() -> None:
    async def story() -> None:
        slow = Slow()
        gathering = Gathering(slow, most=10)
        first, *others = await asked(gathering, 1) + await asked(gathering, 2, 3)
        first.cancel()
        others[0].cancel()
        slow.open.set()
        assert await others[1] == 6
        assert slow.calls == [[1], [3]]

    run(story())


def test_too_many_are_refused_at_once() -> None:
    async def story() -> None:
        slow = Slow()
        gathering = Gathering(slow, most=2, waiting=3)
        tasks = await asked(gathering, 0) + await asked(gathering, 1, 2, 3)
        with pytest.raises(Overloaded, match="3 questions wait already"):
            await gathering.ask(4)
        slow.open.set()
        assert await asyncio.gather(*tasks) == [0, 2, 4, 6]

    run(story())
