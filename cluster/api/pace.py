"""Limits how many requests of one sender start at once, so that a flood does not delay others.

Serve's proxy and the ingress process each request in many small steps and take turns between
requests: one that comes after eighty others waits for all of them, even though each user's calls
are made one by one later on. So requests wait here, where waiting costs nothing. A request that
takes long, such as a stream, blocks nobody: after some time its place goes to the next request.
For a sender who is alone this time is short, since many requests are answered in common passes. If
others send requests too, a sender has few places and keeps each for longer than an answer takes
under load; otherwise the limit would have no effect just then.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import deque
from dataclasses import dataclass
from weakref import WeakValueDictionary

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass(frozen=True)
class Pace:
    """How many places a sender has for requests that start, and how long one keeps its place."""

    at_once: int
    seconds: float


ALONE = Pace(16, 0.1)  # more requests than a core answers in that time
AMONG_OTHERS = Pace(2, 1.0)
RECENT = 1.0  # seconds; a sender with a request in the last RECENT counts as one of the others
KEPT = 4096  # digests of valid tokens; beyond that the oldest is forgotten
WAITING = 256  # requests of one sender, who may have left; more are refused
# Paths for supervisors and load balancers, whose address may also be that of strangers.
PROBES = ("/v1/health", "/v1/ready", "/v2/health/live", "/v2/health/ready", "/-/healthz")
GUARDED = re.compile(r"/v1/(?!openapi\.json)|/v2/models")  # paths that need a valid token
STEERING = (
    *(b"x-request-timeout-seconds", b"x-request-disconnect-disabled"),
    *(b"serve-multiplexed-model-id", b"x-session-id"),
)
REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,64}")


class _Line:
    """The requests of one sender that wait for a place, and the number of places taken."""

    def __init__(self) -> None:
        self.waiting = deque[asyncio.Future[None]]()
        self.begun = 0

    async def enter(self, pace: Pace) -> None:
        """Wait for a place, behind the requests that wait already, and take it."""
        place = asyncio.get_running_loop().create_future()
        self.waiting.append(place)
        self._fill(pace)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # given just before the cancellation
                self.leave(pace)
            raise
        finally:
            if place in self.waiting:
                self.waiting.remove(place)

    def leave(self, pace: Pace) -> None:
        """Free a place, and give it to the next request if one waits and the pace allows it."""
        self.begun -= 1
        self._fill(pace)

    def _fill(self, pace: Pace) -> None:
        while self.waiting and self.begun < pace.at_once:
            place = self.waiting.popleft()
            if not place.done():
                place.set_result(None)
                self.begun += 1


class SenderLimiter:
    """ASGI middleware around Serve's proxy. A sender is a token that was valid here, else an
    address, so that made-up tokens of one address count as one sender."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._lines = app, WeakValueDictionary[str, _Line]()
        self._good: dict[str, None] = {}  # digests of valid tokens, the oldest first
        self._asked: dict[str, float] = {}  # time of the last request by valid token, latest last

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        scope["headers"] = [one for one in scope["headers"] if _is_heard(*one)]
        if scope["path"] in PROBES:
            return await self._app(scope, receive, send)
        token, address = _digest(scope), scope.get("client") or ("",)
        new = token if token not in self._good else None
        sender = token if token and not new else address[0]
        self._heard(sender)
        line = self._lines.setdefault(sender, _Line())
        # A token's first request is never refused because of others of its address; the number of
        # connections of an address is limited (`cluster.serving.connections`).
        if len(line.waiting) >= WAITING and not new:
            return await _refusal()(scope, receive, send)
        await line.enter(self._pace(sender))
        begins = True

        def begun() -> None:
            nonlocal begins
            if begins:
                begins = False
                line.leave(self._pace(sender))

        timer = asyncio.get_running_loop().call_later(self._pace(sender).seconds, begun)

        async def told(message: Message) -> None:
            # Only 2xx: a path without a route is answered before the token is checked.
            if new and 200 <= message.get("status", 0) < 300 and GUARDED.match(scope["path"]):
                self._was_good(new)
            await send(message)

        try:
            await self._app(scope, receive, told)
        finally:
            timer.cancel()
            begun()

    def _was_good(self, token: str) -> None:
        self._good[token] = None
        if len(self._good) > KEPT:
            del self._good[next(iter(self._good))]
        self._heard(token)

    def _heard(self, sender: str) -> None:
        if sender in self._good:
            self._asked.pop(sender, None)
            self._asked[sender] = time.monotonic()

    def _pace(self, sender: str) -> Pace:
        """The sender's current pace. Only valid tokens count as others, so that strangers do not
        slow users down."""
        while self._asked and next(iter(self._asked.values())) < time.monotonic() - RECENT:
            del self._asked[next(iter(self._asked))]
        others = len(self._asked) - (sender in self._asked)
        return AMONG_OTHERS if others else ALONE


PACED = Middleware(SenderLimiter)


def _digest(scope: Scope) -> str | None:
    """The sha256 of the request's token, which may be long and is a secret; None without one."""
    token = Headers(scope=scope).get("authorization")
    return token and hashlib.sha256(token.encode()).hexdigest()


def _is_heard(name: bytes, value: bytes) -> bool:
    """Whether a header is passed on. With some a sender could steer Serve, such as to continue
    after they left, and a request id that is not printable ASCII breaks its proxy."""
    name = name.lower().replace(b"_", b"-")
    if name == b"x-request-id":
        return bool(REQUEST_ID.fullmatch(value))
    return name not in STEERING


def _refusal() -> JSONResponse:
    """The refusal, in the format of the API, which the request does not reach."""
    why = f"{WAITING} requests of one sender wait already; ask again soon"
    body = {"error": "TooMany", "message": why, "request_id": ""}
    return JSONResponse(body, 429, {"retry-after": "1"})
