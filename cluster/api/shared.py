"""Answers that are shared by all requests of one kind within a period."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from cluster import tracing

SECONDS = 1.0
A = TypeVar("A")


class Shared(Generic[A]):
    """Keeps an answer for `period` seconds, an error for at most one second. Answers are computed
    in a separate context: Ray cancels calls made in the context of a request that was given up,
    but the other requests wait for the answer too."""

    def __init__(self, period: float) -> None:
        self._period = period
        self._answers: dict[object, tuple[float, asyncio.Future[A]]] = {}

    async def ask(self, what: object, ask: Callable[[], Awaitable[A]]) -> A:
        now = time.monotonic()
        for old, (asked, answer) in list(self._answers.items()):
            failed = answer.done() and (answer.cancelled() or answer.exception() is not None)
            period = min(self._period, SECONDS) if failed else self._period
            if answer.done() and now - asked >= period:
                del self._answers[old]
        if what not in self._answers:
            self._answers[what] = now, tracing.apart().run(lambda: asyncio.ensure_future(ask()))
        return await asyncio.shield(self._answers[what][1])
