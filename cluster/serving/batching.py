"""Questions that arrive while calls are on their way go together in the next one.

A call to another process, or a pass through an encoder, costs much by itself and little for one
more question. No question waits for a timer: one that arrives while no call is on its way goes at
once. Users take turns, so that nobody waits behind all questions of another user. Questions for
which nobody waits any more are dropped, also on their way. If the process that was asked dies, one
of the questions may have killed it: each is asked once more by itself, while no other suspect is on
its way, and never a third time.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Generic, TypeVar

from tacl.errors import Overloaded, RunFailed

Q = TypeVar("Q")
A = TypeVar("A")


class ProcessDied(Exception):
    """Raised by `send`: the process that was asked died before it answered this call."""


class Batcher(Generic[Q, A]):
    """Questions on their way in common calls: of each user the oldest, then of each the next.

    Args:
        send: returns the answer to every question of a call, or the error that its caller gets.
            Raises ProcessDied.
        alone: returns a question that is answered by itself, sharing nothing with others.
        most: what the questions of a call may weigh together; one that weighs more goes alone.
        weight: of a question; default 1.
        whose: the user who asks it; default, all are one user's.
        each: what those of one user may weigh together in a call, so that nobody who comes while it
            is on its way waits for all questions of another user; default `most`.
        calls: how many may be on their way; further ones leave only if they are full, or if a user
            waits who has nothing on its way: a newcomer does not wait for two calls.
        waiting: questions that may wait for a call.
        suspects: held by the one suspect that is on its way; shared by all whose questions the same
            process answers, for it may die with calls of several.
    """

    def __init__(
        self,
        send: Callable[[list[Q]], Awaitable[Sequence[A | Exception]]],
        *,
        most: int,
        alone: Callable[[Q], Q] = lambda question: question,
        weight: Callable[[Q], int] = lambda question: 1,
        whose: Callable[[Q], str] = lambda question: "",
        each: int | None = None,
        calls: int = 1,
        waiting: int = 1 << 20,
        suspects: asyncio.Lock | None = None,
    ) -> None:
        self._suspects = suspects or asyncio.Lock()
        self._send, self._alone, self._most, self._weight = send, alone, most, weight
        self._whose, self._most_calls, self._limit = whose, calls, waiting
        self._each = min(most, each or most)
        # By user, the one whose turn is next first; only users whose questions wait.
        self._waiting: dict[str, deque[tuple[Q, asyncio.Future[A]]]] = {}
        self._count = 0  # of all that wait
        self._calling: set[asyncio.Task[None]] = set()
        self._served = Counter[str]()  # questions on their way, by user

    async def ask(self, question: Q) -> A:
        """Raises Overloaded when too many wait, and what `send` raises or answers for this one."""
        if self._count >= self._limit:
            raise Overloaded(f"{self._limit} questions wait already; ask again soon")
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(self._whose(question), deque()).append((question, future))
        self._count += 1
        if self._leaves(beside=len(self._calling)):
            # In an empty context: a call is not part of the request that started it, and must not
            # end with it.
            self._calling.add(asyncio.create_task(self._calls(), context=Context()))
        return await future

    def _leaves(self, beside: int) -> bool:
        if not self._waiting or not beside:
            return bool(self._waiting)
        if beside >= self._most_calls:
            return False
        if not self._waiting.keys() <= self._served.keys():
            return True
        waiting = (question for queue in self._waiting.values() for question, _ in queue)
        return sum(map(self._weight, waiting)) >= self._most

    async def _calls(self) -> None:
        try:
            while self._leaves(beside=len(self._calling) - 1):
                asked = self._next()
                users = Counter(self._whose(question) for question, _ in asked)
                self._served += users
                try:
                    await self._call(asked)
                finally:
                    self._served -= users
        finally:
            self._calling.discard(asyncio.current_task())  # pyright: ignore[reportArgumentType]

    def _next(self) -> list[tuple[Q, asyncio.Future[A]]]:
        chosen, room, passed = [], self._most, 0
        left = defaultdict[str, int](lambda: self._each)
        while room > 0 and passed < len(self._waiting):
            user = next(iter(self._waiting))
            queue = self._waiting.pop(user)
            question, future = queue[0]
            weight = self._weight(question)
            if future.done():  # its caller has given up
                queue.popleft()
                self._count -= 1
            elif not chosen or weight <= min(room, left[user]):
                chosen.append(queue.popleft())
                self._count -= 1
                room, left[user], passed = room - weight, left[user] - weight, 0
            else:
                passed += 1
            if queue:
                self._waiting[user] = queue  # behind the others
        return chosen

    async def _call(self, asked: list[tuple[Q, asyncio.Future[A]]]) -> None:
        try:
            await self._answer(asked)
        except ProcessDied:
            for question, future in asked:
                await self._again(self._alone(question), future)

    async def _again(self, question: Q, future: asyncio.Future[A]) -> None:
        try:
            async with self._suspects:
                await self._answer([(question, future)])
        except ProcessDied:
            if not future.done():
                future.set_exception(
                    RunFailed(
                        "two processes died while they answered this question, the second one "
                        "with nothing else to do; it is not asked again. Ask something else"
                    )
                )

    async def _answer(self, asked: list[tuple[Q, asyncio.Future[A]]]) -> None:
        """Raises ProcessDied."""
        asked = [(question, future) for question, future in asked if not future.done()]
        if not asked:
            return
        sending = self._send([question for question, _ in asked])
        call = asyncio.ensure_future(sending)

        def left(_: asyncio.Future[A]) -> None:
            if all(future.cancelled() for _, future in asked):
                call.cancel()

        for _, future in asked:
            future.add_done_callback(left)
        await asyncio.wait([call])
        _tell([future for _, future in asked], call)


def _tell(futures: list[asyncio.Future[A]], call: asyncio.Future[Sequence[A | Exception]]) -> None:
    """Raises ProcessDied, and tells any other error to all: also whoever still waits for a call
    that was cancelled, which the other side did."""
    gave_up = Overloaded("the process that was asked gave this call up; ask again")
    error = gave_up if call.cancelled() else call.exception()
    if isinstance(error, ProcessDied) or (error and not isinstance(error, Exception)):
        raise error
    found = [error] * len(futures) if error else call.result()
    for future, answer in zip(futures, found, strict=True):
        if future.done():
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
