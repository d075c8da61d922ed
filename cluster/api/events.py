"""Server-sent events about changes of tasks, runs and the cluster.

In each period a server asks the cluster once whether anything is new, however many listen. If so,
it asks what is new once for each user who listens, however many pages they have open.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from cluster.api.access import Caller, Guarded, caller_of
from cluster.api.dependencies import ApiRequest, ReadRequest
from cluster.api.shared import Shared
from cluster.domain.api import CoordinatorAPI
from cluster.domain.status import ClusterStatus
from cluster.errors import name_of
from tacl.errors import NotAuthenticated, TaclError

ROUTER = APIRouter(route_class=Guarded, tags=["events"])
PERIOD = 1.0  # seconds between two requests to the cluster
ALIVE = 15.0  # seconds of silence after which a comment is sent, to show that the line is alive

KEPT = {"name", "state", "phase", "step", "steps", "loss", "version", "reason"}
RUNS = {"run_id", "kind", "state", "step", "steps"}
CLUSTER = ""  # key of the cluster's own event: no task or run has this name

Known = Callable[[], Awaitable[Caller]]


class ToldLast(NamedTuple):
    """What a listener was told last (None: nothing was new), and the versions of that answer."""

    changes: str  # the version over everybody's changes; not sent to the listener
    version: str
    more: bool
    told: ClusterStatus | None


NOTHING = ToldLast("", "", False, None)


class News:
    """Gets what is new in the cluster, for all listeners of a server."""

    def __init__(self) -> None:
        self._changes = Shared[str](PERIOD)
        self._told = Shared[ClusterStatus](PERIOD)

    async def since(self, asked: ApiRequest, heard: ToldLast = NOTHING) -> ToldLast:
        """What is new since `heard`. Raises TaclError while the cluster does not answer."""
        now = await self._changes.ask("version", lambda: asked.service.ask(CoordinatorAPI.version))
        if now == heard.changes and not heard.more:
            return heard._replace(told=None)
        version = heard.version
        whose = asked.caller.name, asked.caller.role, version, now
        told = await self._told.ask(
            whose, lambda: asked.ask_without_paths(CoordinatorAPI.status, version)
        )
        return ToldLast(now, told.version, told.more, told)


class EventStream(StreamingResponse):
    """A stream that takes one of its listener's places while it is sent; the place is freed even if
    the lines were never started."""

    media_type = "text/event-stream"
    place: AbstractContextManager[None] = nullcontext()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def gone() -> Message:
            """End the stream if the listener sends a body, which nobody would count any more."""
            message = await receive()
            return {"type": "http.disconnect"} if message.get("body") else message

        with self.place:
            await super().__call__(scope, gone, send)


@ROUTER.get("/events", response_class=EventStream)
async def events(request: Request, asked: ReadRequest) -> EventStream:
    """Events `task` for every task, `run` for other work and `cluster` for whether there is
    trouble: first all of them, then each one that changes, and `gone` for one that no longer
    exists. The stream ends with the token."""
    news: News = request.app.state.news
    first = await news.since(asked)
    lines = _lines(asked, news, first, partial(caller_of, request))
    stream = EventStream(lines)
    stream.place = asked.shares.listeners.held(asked.caller.name)
    return stream


async def _lines(
    asked: ApiRequest, news: News, heard: ToldLast, known: Known
) -> AsyncIterator[str]:
    """The lines of a stream, until `known` no longer returns the caller who opened it."""
    told, stale, due = dict[str, str](), set[str](), list[str]()
    silent, away = 0.0, False
    while True:
        due += _changes(heard.told, told, stale) if heard.told else []
        if not due and silent >= ALIVE:
            due = [": still here\n\n"]
        try:
            if due and await known() != asked.caller:
                return
        except NotAuthenticated:
            return
        except TaclError as error:  # the listener cannot be checked now: the lines are sent later
            yield _trouble(error)
            await asyncio.sleep(PERIOD)
            heard = heard._replace(told=None)
            continue
        for line in due:
            yield line
            silent = 0.0
        due = []
        if away or not heard.more:
            await asyncio.sleep(PERIOD)
            silent += PERIOD
        away = False
        try:
            heard = await news.since(asked, heard)
        except TaclError as error:  # the cluster does not answer now; the listener stays connected
            heard, away = heard._replace(told=None), True
            yield _trouble(error)


def _trouble(error: TaclError) -> str:
    return _line("trouble", json.dumps({"error": name_of(error)}))


def _changes(told: ClusterStatus, known: dict[str, str], stale: set[str]) -> list[str]:
    """Events for what in `told` differs from `known`, which is updated. `stale`: keys that were
    known before a whole status began to arrive, and have not been reported again yet."""
    if told.whole:  # such as from a coordinator that was restarted
        stale |= known.keys()
        known.clear()
    now = {one.name: _line("task", one.model_dump_json(include=KEPT)) for one in told.tasks}
    now |= {one.run_id: _line("run", one.model_dump_json(include=RUNS)) for one in told.work}
    lines = [line for name, line in now.items() if known.get(name) != line]
    now[CLUSTER] = _line("cluster", json.dumps({"trouble": told.trouble is not None}))
    lines += [now[CLUSTER]] if known.get(CLUSTER) != now[CLUSTER] else []
    known |= now
    stale -= now.keys()
    gone = [name for name in told.gone if known.pop(name, None)]
    if not told.more:
        gone += sorted(stale)
        stale.clear()
    return lines + [_line("gone", json.dumps({"name": name})) for name in gone]


def _line(kind: str, data: str) -> str:
    return f"event: {kind}\ndata: {data}\n\n"
