"""Requests of one sender begin a few at a time, so that a flood of them lets others pass.

Serve's proxy and the ingress do each request in many small steps, one step of each in turn: who
comes behind eighty others waits for all of them, though each user's calls go one by one later on.
So they wait here, where a request costs nothing. What takes long, as an answer that is waited for
or a stream, holds nobody up for long: its place is the next one's after a while.
"""

from __future__ import annotations

import asyncio
import re
from weakref import WeakValueDictionary

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

AT_ONCE = 16  # of one sender
BEGUN = 0.1  # seconds after which a request is no beginner; AT_ONCE in it is more than a core does
WAITING = 256  # of one sender, who may have left; more are refused
# Whoever restarts or routes asks these, from an address that may be that of strangers too.
PROBES = ("/v1/health", "/v1/ready", "/v2/health/live", "/v2/health/ready", "/-/healthz")
STEERING = (
    *(b"x-request-timeout-seconds", b"x-request-disconnect-disabled"),
    *(b"serve-multiplexed-model-id", b"x-session-id"),
)
REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,64}")


class _Line:
    """Of one sender."""

    def __init__(self) -> None:
        self.places, self.waiting = asyncio.Semaphore(AT_ONCE), 0


class InTurns:
    """ASGI: around Serve's proxy. A sender is a token, or without one an address."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._lines = app, WeakValueDictionary[str, _Line]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        scope["headers"] = [one for one in scope["headers"] if _is_heard(*one)]
        if scope["path"] in PROBES:
            return await self._app(scope, receive, send)
        line = self._lines.setdefault(_sender(scope), _Line())
        if line.waiting >= WAITING:
            return await _refusal()(scope, receive, send)
        line.waiting += 1
        try:
            await line.places.acquire()
        finally:
            line.waiting -= 1
        begins = True

        def begun() -> None:
            nonlocal begins
            if begins:
                line.places.release()
            begins = False

        timer = asyncio.get_running_loop().call_later(BEGUN, begun)
        try:
            await self._app(scope, receive, send)
        finally:
            timer.cancel()
            begun()


PACED = Middleware(InTurns)


def _is_heard(name: bytes, value: bytes) -> bool:
    """By some headers a sender would steer Serve, as to go on for who has left; and what is no text
    in them breaks its proxy."""
    name = name.lower().replace(b"_", b"-")
    if name == b"x-request-id":
        return bool(REQUEST_ID.fullmatch(value))
    return name not in STEERING


def _sender(scope: Scope) -> str:
    return Headers(scope=scope).get("authorization") or (scope.get("client") or ("",))[0]


def _refusal() -> JSONResponse:
    """As the API says it, which is not asked."""
    why = f"{WAITING} requests of one sender wait already; ask again soon"
    body = {"error": "TooMany", "message": why, "request_id": ""}
    return JSONResponse(body, 429, {"retry-after": "1"})
