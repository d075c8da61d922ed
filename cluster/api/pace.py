"""Requests of one sender begin a few at a time, so that a flood of them lets others pass.

Serve's proxy and the ingress do each request in many small steps, one step of each in turn: who
comes behind eighty others waits for all of them, though each user's calls go one by one later on.
So they wait here, where a request costs nothing. What takes long, as an answer that is waited for
or a stream, holds nobody up for long: its place is the next one's after a while. That while is
short for who is alone, whose many requests are answered in common passes; where others ask too, a
sender has few places and keeps them for longer than an answer takes under load, or they would
count for nothing just then.
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
    """How many requests of one sender begin at once, and for how long one is a beginner."""

    at_once: int
    seconds: float


ALONE = Pace(16, 0.1)  # more than a core does in that time
AMONG_OTHERS = Pace(2, 1.0)
RECENT = 1.0  # seconds; who asked something within them is one of the others
KEPT = 4096  # digests of tokens that were good; the oldest of more is forgotten
WAITING = 256  # of one sender, who may have left; more are refused
# Whoever restarts or routes asks these, from an address that may be that of strangers too.
PROBES = ("/v1/health", "/v1/ready", "/v2/health/live", "/v2/health/ready", "/-/healthz")
GUARDED = re.compile(r"/v1/(?!openapi\.json)|/v2/models")  # what only good tokens are told
STEERING = (
    *(b"x-request-timeout-seconds", b"x-request-disconnect-disabled"),
    *(b"serve-multiplexed-model-id", b"x-session-id"),
)
REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,64}")


class _Line:
    """Of one sender."""

    def __init__(self) -> None:
        self.waiting = deque[asyncio.Future[None]]()
        self.begun = 0

    async def enter(self, pace: Pace) -> None:
        """Waits for a place, behind who waits already, and takes it."""
        place = asyncio.get_running_loop().create_future()
        self.waiting.append(place)
        self._fill(pace)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # given at the moment of leaving
                self.leave(pace)
            raise
        finally:
            if place in self.waiting:
                self.waiting.remove(place)

    def leave(self, pace: Pace) -> None:
        """Its place is the next one's, where there is one and the pace allows."""
        self.begun -= 1
        self._fill(pace)

    def _fill(self, pace: Pace) -> None:
        while self.waiting and self.begun < pace.at_once:
            place = self.waiting.popleft()
            if not place.done():
                place.set_result(None)
                self.begun += 1


class SenderLimiter:
    """ASGI: around Serve's proxy. A sender is a token that was good here, else an address: whoever
    makes tokens up is one sender."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._lines = app, WeakValueDictionary[str, _Line]()
        self._good: dict[str, None] = {}  # digests of tokens, the oldest first
        self._asked: dict[str, float] = {}  # when a good token did last; which did last is last

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
        # Nobody's first request is refused for what others of the address send; the door bounds it.
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
            # A redirect is told before the token is looked at.
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
        """Now. Strangers are no others to a user, whom they would slow down."""
        while self._asked and next(iter(self._asked.values())) < time.monotonic() - RECENT:
            del self._asked[next(iter(self._asked))]
        others = len(self._asked) - (sender in self._asked)
        return AMONG_OTHERS if others else ALONE


PACED = Middleware(SenderLimiter)


def _digest(scope: Scope) -> str | None:
    """Of a token, which may be long and is a secret."""
    token = Headers(scope=scope).get("authorization")
    return token and hashlib.sha256(token.encode()).hexdigest()


def _is_heard(name: bytes, value: bytes) -> bool:
    """By some headers a sender would steer Serve, as to go on for who has left; and what is no text
    in them breaks its proxy."""
    name = name.lower().replace(b"_", b"-")
    if name == b"x-request-id":
        return bool(REQUEST_ID.fullmatch(value))
    return name not in STEERING


def _refusal() -> JSONResponse:
    """As the API says it, which is not asked."""
    why = f"{WAITING} requests of one sender wait already; ask again soon"
    body = {"error": "TooMany", "message": why, "request_id": ""}
    return JSONResponse(body, 429, {"retry-after": "1"})
