"""What a server reads of the registry itself, so that the coordinator is not asked: it may be busy
or dead. `cluster.domain.api.READS` says what that is; the rest is decided or written, by the
coordinator alone.

SQLite is read on the coordinator's machine alone: on another one its file, where it lies on a
shared disk, might be seen as it was. Where the registry cannot be read, or its server does not
answer in time (`cluster.registry.dialects`), the coordinator is asked, and all else for a while.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from cluster import tracing
from cluster.domain.api import READS
from cluster.reading.reader import Reader
from cluster.runtime import near
from cluster.storage.home import Home
from tacl.errors import ClusterNotRunning, StorageUnavailable, TaclError

LOG = logging.getLogger(__name__)
OF_MANY = ("holders", "compositions")  # asked for every request: they have threads of their own
THREADS = 3  # for all else
AGAIN = 10.0  # seconds until it is tried again to read what could not be read


class Unread(Exception):
    """The registry cannot be read from here, now."""


class OwnReads:
    """`ask_coordinator`: a method by its name, and its arguments."""

    def __init__(self, home: Home, ask_coordinator: Callable[..., Awaitable[Any]]) -> None:
        self._home, self._ask_coordinator = home, ask_coordinator
        self._loop = asyncio.get_running_loop()
        self._of_many, self._of_one = map(ThreadPoolExecutor, (len(OF_MANY), THREADS))
        self._opening, self._tried = threading.Lock(), -AGAIN
        self._reader: Reader | None = None
        self._is_said = False  # that the registry cannot be read; until it can
        self._noting = set[str]()  # hashes of tokens whose use the coordinator is told of

    async def ask(self, method: str, *arguments: object, **named: object) -> Any:
        """Raises what the method raises."""
        if method in READS:
            threads = self._of_many if method in OF_MANY else self._of_one
            read = partial(self._read, tracing.carried(), method, *arguments, **named)
            with suppress(Unread):  # it was said
                return await self._loop.run_in_executor(threads, read)
        return await self._ask_coordinator(method, *arguments, **named)

    # -- in a thread

    def _read(self, parent: dict[str, str], method: str, *arguments: Any, **named: Any) -> Any:
        context = next(iter(arguments), None)
        ids = {"request_id": getattr(context, "request_id", None)}
        try:
            reader = self._opened()
            with tracing.span(method, parent.get("traceparent"), **ids):
                answer = getattr(reader, method)(*arguments, **named)
        except StorageUnavailable as error:
            raise self._unread(error) from error
        self._is_said = False
        return answer

    def _opened(self) -> Reader:
        """Raises Unread."""
        with self._opening:
            if time.monotonic() - self._tried < AGAIN:
                raise Unread
            try:
                self._reader = self._reader or self._open()
            except TaclError as error:
                raise self._unread(error) from error
            return self._reader

    def _open(self) -> Reader:
        if self._home.is_pinned and not near.answers(self._home.path):
            raise ClusterNotRunning(f"no coordinator listens in {self._home.path} on this machine")
        return Reader(self._home, self._use)

    def _unread(self, error: TaclError) -> Unread:
        self._tried = time.monotonic()
        if not self._is_said:
            LOG.warning("the registry is not read here; the coordinator is asked: %s", error)
        self._is_said = True
        return Unread(str(error))

    # -- the use of tokens

    def _use(self, hashes: Sequence[str]) -> None:
        asyncio.run_coroutine_threadsafe(self._note(hashes), self._loop)

    async def _note(self, hashes: Sequence[str]) -> None:
        """The coordinator writes it down; nobody waits for that."""
        new = [one for one in hashes if one not in self._noting]
        self._noting.update(new)
        try:
            if new:
                await self._ask_coordinator("holders", new)
        except Exception:
            LOG.warning("the use of tokens is noted with their next request", exc_info=True)
        finally:
            self._noting.difference_update(new)
