"""What changes, as it changes: server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, nullcontext

from fastapi import APIRouter, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from cluster.api.access import Guarded
from cluster.api.dependencies import Asked, Look
from cluster.api.shares import shares_of
from cluster.domain.api import CoordinatorAPI
from tacl.errors import TaclError

ROUTER = APIRouter(route_class=Guarded, tags=["events"])
PERIOD = 1.0  # seconds between two looks
ALIVE = 15.0  # seconds after which silence is broken, so that nobody takes it for a lost line

KEPT = {"name", "state", "step", "steps", "loss", "version", "reason"}
Seen = dict[str, dict[str, object]]  # by task


class EventStream(StreamingResponse):
    """Holds a listener's place for as long as it is sent, begun or not."""

    media_type = "text/event-stream"
    place: AbstractContextManager[None] = nullcontext()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.place:
            await super().__call__(scope, receive, send)


@ROUTER.get("/events", response_class=EventStream)
async def events(request: Request, asked: Look) -> EventStream:
    """An event `task` for every task now, and then whenever one changes; never ends."""
    lines = _changes(asked, await _tasks(asked))
    stream = EventStream(lines, headers={"cache-control": "no-store"})
    stream.place = shares_of(request).listeners.held(asked.caller.name)
    return stream


async def _changes(asked: Asked, tasks: Seen) -> AsyncIterator[str]:
    known: Seen = {}
    silent = 0.0
    while True:
        for name, facts in tasks.items():
            if known.get(name) != facts:
                yield f"event: task\ndata: {json.dumps(facts)}\n\n"
                silent = 0.0
        for name in known.keys() - tasks.keys():
            yield f"event: gone\ndata: {json.dumps({'name': name})}\n\n"
        known = tasks
        await asyncio.sleep(PERIOD)
        if (silent := silent + PERIOD) >= ALIVE:
            yield ": still here\n\n"
            silent = 0.0
        try:
            tasks = await _tasks(asked)
        except TaclError as error:  # the cluster is away for now; who listens may wait
            yield f"event: trouble\ndata: {json.dumps({'error': type(error).__name__})}\n\n"


async def _tasks(asked: Asked) -> Seen:
    found = await asked.tell(CoordinatorAPI.status)
    return {one.name: one.model_dump(mode="json", include=KEPT) for one in found.tasks}
