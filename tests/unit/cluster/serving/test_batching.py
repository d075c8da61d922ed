"""Questions that share calls: each gets its own answer, whatever happens to the others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

import pytest

from cluster.serving.batching import Batcher, ProcessDied
from tacl.errors import BadSample, Overloaded, RunFailed


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


async def asked(gathering: Batcher[int, int], *numbers: int) -> list[asyncio.Task[int]]:
    tasks = [asyncio.create_task(gathering.ask(number)) for number in numbers]
    await asyncio.sleep(0.01)
    return tasks


def test_what_arrives_during_a_call_goes_in_the_next() -> None:
    async def story() -> None:
        slow = Slow()
        gathering = Batcher(slow, most=3)
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
        gathering = Batcher(slow, most=10, weight=lambda number: number, calls=2)
        tasks = await asked(gathering, 1)
        tasks += await asked(gathering, 4, 5)
        assert slow.calls == [[1]]
        tasks += await asked(gathering, 6, 11, 2)
        assert slow.calls == [[1], [4, 5]]
        slow.open.set()
        assert await asyncio.gather(*tasks) == [2, 8, 10, 12, 22, 4]
        assert slow.calls[2:] == [[6], [11], [2]]  # 11 is more than a call holds: it goes alone

    run(story())


def test_who_has_nothing_on_its_way_waits_for_no_call_of_others() -> None:
    """Of numbers, 100 and more are one user's, 200 and more another's."""

    async def story() -> None:
        slow = Slow()
        gathering = Batcher(slow, most=10, whose=lambda number: str(number // 100), calls=2)
        tasks = await asked(gathering, 101)
        tasks += await asked(gathering, 102)
        assert slow.calls == [[101]]
        tasks += await asked(gathering, 201)
        assert slow.calls == [[101], [102, 201]]
        tasks += await asked(gathering, 1)  # as many as may be are on their way
        assert len(slow.calls) == 2
        slow.open.set()
        assert await asyncio.gather(*tasks) == [202, 204, 402, 2]
        tasks = await asked(gathering, 101)
        assert await asyncio.gather(*tasks) == [202]
        assert not gathering._served

    run(story())


def test_users_take_turns() -> None:
    """Of numbers, 100 and more are one user's and lie before those of others."""

    async def story(expected: list[list[int]], weight: int, *numbers: int) -> None:
        slow = Slow()
        whose = lambda number: str(number // 100)  # noqa: E731
        heavy = lambda number: weight if number >= 100 else 1  # noqa: E731
        gathering = Batcher(slow, most=4, weight=heavy, whose=whose)
        tasks = [*await asked(gathering, 0), *await asked(gathering, *numbers)]
        slow.open.set()
        assert await asyncio.gather(*tasks) == [0, *(2 * number for number in numbers)]
        assert slow.calls == [[0], *expected]

    many = (101, 102, 103, 104, 105, 106)
    run(story([[101, 1, 201, 102], [103, 104, 105, 106]], 1, *many, 1, 201))
    # What fills a call goes alone, and those beside it neither wait for all of it nor stop it.
    run(story([[101], [1, 2], [102], [103]], 4, 101, 102, 103, 1, 2))


def test_a_call_takes_few_of_each_user() -> None:
    """Of numbers, 100 and more are one user's; 2 of each user go in a call of 6."""

    async def story() -> None:
        slow = Slow()
        whose = lambda number: str(number // 100)  # noqa: E731
        gathering = Batcher(slow, most=6, whose=whose, each=2)
        tasks = [*await asked(gathering, 0), *await asked(gathering, *range(101, 108), 1, 201)]
        slow.open.set()
        await asyncio.gather(*tasks)
        assert slow.calls == [[0], [101, 1, 201, 102], [103, 104], [105, 106], [107]]

    run(story())


def test_an_error_is_told_to_whom_it_concerns() -> None:
    async def story() -> None:
        slow = Slow()
        slow.open.set()
        gathering = Batcher(slow, most=10)
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
        gathering = Batcher(slow, most=10)
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
        gathering = Batcher(slow, most=2, waiting=3)
        tasks = await asked(gathering, 0) + await asked(gathering, 1, 2, 3)
        with pytest.raises(Overloaded, match="3 questions wait already"):
            await gathering.ask(4)
        slow.open.set()
        assert await asyncio.gather(*tasks) == [0, 2, 4, 6]

    run(story())


def test_what_nobody_waits_for_is_cancelled_on_its_way() -> None:
    async def story() -> None:
        slow, cancelled = Slow(), []

        async def send(numbers: list[int]) -> list[int | Exception]:
            try:
                return await slow(numbers)
            except asyncio.CancelledError:
                cancelled.append(numbers)
                raise

        gathering = Batcher(send, most=2)
        (first,) = await asked(gathering, 1)
        second, third, fourth = await asked(gathering, 2, 3, 4)
        first.cancel()
        await asyncio.sleep(0.01)
        assert cancelled == [[1]]
        second.cancel()
        await asyncio.sleep(0.01)
        assert (slow.calls, cancelled) == ([[1], [2, 3]], [[1]])  # somebody waits for 3
        slow.open.set()
        assert await asyncio.gather(third, fourth) == [6, 8]

    run(story())


def test_who_waits_for_a_call_that_the_other_side_cancels_is_told() -> None:
    async def story() -> None:
        slow = Slow()

        async def send(numbers: list[int]) -> list[int | Exception]:
            found = await slow(numbers)
            if 7 in numbers:  # so Ray says of a call that was cancelled there
                raise asyncio.CancelledError
            return found

        gathering = Batcher(send, most=3)
        tasks = await asked(gathering, 1) + await asked(gathering, 2, 7, 3)
        tasks[1].cancel()
        slow.open.set()
        first, _, *given_up = await asyncio.gather(*tasks, return_exceptions=True)
        assert first == 2
        assert [type(one) for one in given_up] == [Overloaded, Overloaded]
        assert await gathering.ask(6) == 12

    run(story())


def test_a_call_does_not_end_with_the_request_that_it_left_with() -> None:
    """Serve cancels what was asked in the context of a request whose caller has gone."""
    whose: ContextVar[str] = ContextVar("whose")

    async def story() -> None:
        found: list[str] = []

        async def send(numbers: list[int]) -> list[int | Exception]:
            found.append(whose.get("nobody's"))
            return list(numbers)

        whose.set("the first caller's")
        assert await Batcher(send, most=2).ask(1) == 1
        assert found == ["nobody's"]

    run(story())


class Mortal:
    """A predictor that numbers of 100 and more kill, with all that it was asked in the same call.
    0 kills the first time only: something else did."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.deaths = 0

    async def __call__(self, numbers: list[int]) -> list[int | Exception]:
        self.calls.append(numbers)
        await asyncio.sleep(0)
        if max(numbers) >= 100 or (0 in numbers and not self.deaths):
            self.deaths += 1
            raise ProcessDied
        return [2 * number for number in numbers]

    def times(self, number: int) -> int:
        return sum(call.count(number) for call in self.calls)


def test_one_poisoned_question_kills_twice_and_the_others_are_answered() -> None:
    async def story() -> None:
        mortal = Mortal()
        gathering = Batcher(mortal, most=10)
        first, *tasks = await asyncio.gather(
            *map(gathering.ask, [1, 2, 100, 3, 4]), return_exceptions=True
        )
        assert first == 2
        assert [tasks[0], *tasks[2:]] == [4, 6, 8]
        assert isinstance(tasks[1], RunFailed)
        assert mortal.deaths == mortal.times(100) == 2
        assert all(len(call) == 1 for call in mortal.calls[2:])
        assert await gathering.ask(5) == 10

    run(story())


class Process:
    """One that answers several calls at a time: of 100 and more it dies, with all that it has."""

    def __init__(self) -> None:
        self.there, self.deaths = list[asyncio.Future[None]](), 0

    async def __call__(self, numbers: list[int]) -> list[int | Exception]:
        died = asyncio.get_running_loop().create_future()
        self.there.append(died)
        try:
            await asyncio.wait([died], timeout=0.05)
            if max(numbers) >= 100 and not died.done():
                self.deaths += 1
                for one in self.there:
                    one.set_result(None)
            if died.done():
                raise ProcessDied
        finally:
            self.there.remove(died)
        return [2 * number for number in numbers]


def test_who_was_in_another_call_of_a_process_that_died_is_not_blamed_for_the_next() -> None:
    async def story() -> None:
        process, suspects = Process(), asyncio.Lock()
        few, many = (Batcher(process, most=10, suspects=suspects) for _ in range(2))
        poisoned, innocent = await asyncio.gather(many.ask(100), few.ask(1), return_exceptions=True)
        assert isinstance(poisoned, RunFailed)
        assert innocent == 2
        assert process.deaths == 2

    run(story())


def test_a_death_of_another_cause_costs_nobody_the_answer() -> None:
    async def story() -> None:
        mortal = Mortal()
        gathering = Batcher(mortal, most=10)
        assert await gathering.ask(0) == 0
        assert mortal.calls == [[0], [0]]

    run(story())


def test_who_left_is_not_asked_again_after_a_death() -> None:
    async def story() -> None:
        mortal = Mortal()
        gathering = Batcher(mortal, most=10, alone=lambda number: -number)
        tasks = [asyncio.create_task(gathering.ask(number)) for number in (0, 100, 7)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        assert await asyncio.gather(*tasks[:2]) == [0, -200]
        assert mortal.times(-7) == 0
        assert mortal.times(-100) == 1  # asked again as a question that shares nothing

    run(story())
