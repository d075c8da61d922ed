"""What changes, as it changes: server-sent events.

A server asks the cluster once a period whether anything is new, however many listen; and what, once
for each person who listens, however many pages they have open.
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
PERIOD = 1.0  # seconds between two looks
ALIVE = 15.0  # seconds after which silence is broken, so that nobody takes it for a lost line

KEPT = {"name", "state", "phase", "step", "steps", "loss", "version", "reason"}
RUNS = {"run_id", "kind", "state", "step", "steps"}
CLUSTER = ""  # no name of a task, and no run

Known = Callable[[], Awaitable[Caller]]


class ToldLast(NamedTuple):
    """What a listener was told last, None where nothing was new, and where the cluster was then."""

    changes: str  # of everybody; it is not told
    version: str
    more: bool
    told: ClusterStatus | None


NOTHING = ToldLast("", "", False, None)


class News:
    """What is new in the cluster, for all who listen to a server."""

    def __init__(self) -> None:
        self._changes = Shared[str](PERIOD)
        self._told = Shared[ClusterStatus](PERIOD)

    async def since(self, asked: ApiRequest, heard: ToldLast = NOTHING) -> ToldLast:
        """Raises TaclError while the cluster is away."""
        now = await self._changes.ask("version", lambda: asked.service.ask(CoordinatorAPI.version))
        if now == heard.changes and not heard.more:
            return heard._replace(told=None)
        version = heard.version
        whose = asked.caller.name, asked.caller.role, version, now
        told = await self._told.ask(whose, lambda: asked.tell(CoordinatorAPI.status, version))
        return ToldLast(now, told.version, told.more, told)


class EventStream(StreamingResponse):
    """Holds a listener's place for as long as it is sent, begun or not."""

    media_type = "text/event-stream"
    place: AbstractContextManager[None] = nullcontext()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def gone() -> Message:
            """Who listens sends nothing: nobody would count it any more."""
            message = await receive()
            return {"type": "http.disconnect"} if message.get("body") else message

        with self.place:
            await super().__call__(scope, gone, send)


@ROUTER.get("/events", response_class=EventStream)
async def events(request: Request, asked: ReadRequest) -> EventStream:
    """An event `task` for every task now, `run` for other work, `cluster` for whether there is
    trouble, and then whenever one changes; `gone` for one that is there no more; until the token
    ends."""
    news: News = request.app.state.news
    first = await news.since(asked)
    lines = _lines(asked, news, first, partial(caller_of, request))
    stream = EventStream(lines, headers={"cache-control": "no-store"})
    stream.place = asked.shares.listeners.held(asked.caller.name)
    return stream


async def _lines(
    asked: ApiRequest, news: News, heard: ToldLast, known: Known
) -> AsyncIterator[str]:
    """Until who listens is not `known` any more as who began to."""
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
        except TaclError as error:  # nobody can say now who listens: it is told later
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
        except TaclError as error:  # the cluster is away for now; who listens may wait
            heard, away = heard._replace(told=None), True
            yield _trouble(error)


def _trouble(error: TaclError) -> str:
    return _line("trouble", json.dumps({"error": name_of(error)}))


def _changes(told: ClusterStatus, known: dict[str, str], stale: set[str]) -> list[str]:
    """Events of what is told and was not `known`, which it is from now on. `stale`: what was known
    before all began to be told anew, and was not told again yet."""
    if told.whole:  # of a coordinator that was started again
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
