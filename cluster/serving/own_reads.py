"""Reads of the registry by a server itself (`cluster.runtime.own_reader`), in threads, so that it
waits for nobody. If the registry cannot be read, the coordinator is asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from cluster import tracing
from cluster.domain.api import READS
from cluster.runtime.own_reader import OwnReader, Unread
from cluster.storage.home import Home

LOG = logging.getLogger(__name__)
OF_MANY = ("holders", "compositions")  # needed for every request, so with threads of their own
THREADS = 3  # for all other methods


class OwnReads:
    """`ask_coordinator` calls a method of the coordinator: its name, then its arguments."""

    def __init__(self, home: Home, ask_coordinator: Callable[..., Awaitable[Any]]) -> None:
        self._reader, self._ask_coordinator = OwnReader(home, self._use), ask_coordinator
        self._loop = asyncio.get_running_loop()
        self._of_many, self._of_one = map(ThreadPoolExecutor, (len(OF_MANY), THREADS))
        self._is_said = False  # whether it is logged that the registry cannot be read; until it can
        self._noting = set[str]()  # hashes of tokens whose use is being reported

    async def ask(self, method: str, *arguments: object, **named: object) -> Any:
        """Call a method on the registry, else on the coordinator. Raises what the method raises."""
        if method in READS:
            threads = self._of_many if method in OF_MANY else self._of_one
            read = partial(self._read, tracing.inject(), method, *arguments, **named)
            with suppress(Unread):  # `_read` has logged it
                return await self._loop.run_in_executor(threads, read)
        return await self._ask_coordinator(method, *arguments, **named)

    def _read(self, parent: dict[str, str], method: str, *arguments: Any, **named: Any) -> Any:
        """Read in a thread, with a span below that of `parent`. Raises Unread."""
        context = next(iter(arguments), None)
        ids = {"request_id": getattr(context, "request_id", None)}
        try:
            with tracing.span(method, parent.get("traceparent"), **ids):
                answer = self._reader.ask(method, *arguments, **named)
        except Unread as error:
            if not self._is_said:
                LOG.warning("the registry is not read here; the coordinator is asked: %s", error)
            self._is_said = True
            raise
        self._is_said = False
        return answer

    # -- the use of tokens

    def _use(self, hashes: Sequence[str]) -> None:
        asyncio.run_coroutine_threadsafe(self._note(hashes), self._loop)

    async def _note(self, hashes: Sequence[str]) -> None:
        """Report the use of tokens to the coordinator, which records it; no request waits."""
        new = [one for one in hashes if one not in self._noting]
        self._noting.update(new)
        try:
            if new:
                await self._ask_coordinator("holders", new)
        except Exception:
            LOG.warning("the use of tokens is noted with their next request", exc_info=True)
        finally:
            self._noting.difference_update(new)
