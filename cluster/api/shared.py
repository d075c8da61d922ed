"""Answers that all who ask within a period share, by what they ask."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

A = TypeVar("A")


class Shared(Generic[A]):
    """`period` in seconds. An error is told to who waits for it, and is kept for nobody."""

    def __init__(self, period: float) -> None:
        self._period = period
        self._answers: dict[object, tuple[float, asyncio.Future[A]]] = {}

    async def ask(self, what: object, ask: Callable[[], Awaitable[A]]) -> A:
        now = time.monotonic()
        for old, (asked, answer) in list(self._answers.items()):
            is_old = now - asked >= self._period
            if answer.done() and (is_old or answer.cancelled() or answer.exception()):
                del self._answers[old]
        if what not in self._answers:
            self._answers[what] = now, asyncio.ensure_future(ask())
        return await asyncio.shield(self._answers[what][1])
