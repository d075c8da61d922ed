"""What changes, as it changes: server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request
from starlette.responses import StreamingResponse

from cluster.api.access import Asking, Caller
from cluster.api.dependencies import Cluster, tell
from cluster.api.service import Service
from cluster.domain.api import CoordinatorAPI
from tacl.errors import Overloaded, TaclError

ROUTER = APIRouter(tags=["events"])
PERIOD = 1.0  # seconds between two looks
ALIVE = 15.0  # seconds after which silence is broken, so that nobody takes it for a lost line
LISTENERS = 64  # of one server process

KEPT = {"name", "state", "step", "steps", "loss", "version", "reason"}
Seen = dict[str, dict[str, object]]  # by task


class EventStream(StreamingResponse):
    media_type = "text/event-stream"


@ROUTER.get("/events", response_class=EventStream)
async def events(request: Request, caller: Asking, service: Cluster) -> EventStream:
    """An event `task` for every task now, and then whenever one changes; never ends."""
    listeners = request.app.state.__dict__.setdefault("listeners", set())
    if len(listeners) >= LISTENERS:
        raise Overloaded(f"{LISTENERS} listeners already; try again later")
    first = await _tasks(service, caller)
    listeners.add(request)

    async def lines() -> AsyncIterator[str]:
        try:
            async for line in _changes(service, caller, first):
                yield line
        finally:
            listeners.discard(request)

    return EventStream(lines(), headers={"cache-control": "no-store"})


async def _changes(service: Service, caller: Caller, tasks: Seen) -> AsyncIterator[str]:
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
            tasks = await _tasks(service, caller)
        except TaclError as error:  # the cluster is away for now; who listens may wait
            yield f"event: trouble\ndata: {json.dumps({'error': type(error).__name__})}\n\n"


async def _tasks(service: Service, caller: Caller) -> Seen:
    found = await tell(service, CoordinatorAPI.status, caller.context())
    return {one.name: one.model_dump(mode="json", include=KEPT) for one in found.tasks}
