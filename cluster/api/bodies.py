"""What is read of a body, and no more: counted as it arrives, whoever says what its length is."""

from __future__ import annotations

import math

from fastapi import Request
from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import AwaitableOrContextManager, FormData
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cluster.api.limits import INPUTS
from cluster.api.shares import Shares
from cluster.data.answers import ARROW
from cluster.data.budget import TEXT_CHARACTERS
from tacl.errors import Overloaded, TooLarge, TooMany

UPLOAD_BYTES = 1 << 30  # a data set
BODY_BYTES = 32 << 20  # any other request
UPLOADS = "/v1/tasks"
IN_MEMORY = 64 << 20  # bytes of a body that lie in memory at the most; files go to the disk
MARKS = TEXT_CHARACTERS  # brackets and commas of JSON, its texts included
FIELDS = 1100  # of a form: a thousand terms, and what else there is
FIELD_BYTES = 64 << 10
NO_JSON = ({"multipart/form-data"}, {ARROW})  # and no other kind beside it


class Bounded:
    """ASGI: refuses a body that says it is over its limit, and ends one that grows over it, or over
    what is left of its sender's share."""

    def __init__(self, app: ASGIApp, shares: Shares) -> None:
        self._app, self._shares = app, shares

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        body = _Body(scope, self._shares)
        if _declared(scope) > body.most:
            raise TooLarge(body.too_large)

        async def counted() -> Message:
            # HTTPException is the only class that FastAPI lets through while it reads a body.
            message = await receive()
            try:
                body.add(message.get("body", b""))
            except TooLarge as error:
                raise HTTPException(413, str(error)) from error
            except TooMany as error:
                raise HTTPException(429, str(error), {"retry-after": f"{error.seconds}"}) from error
            except Overloaded as error:
                raise HTTPException(503, str(error), {"retry-after": "1"}) from error
            return message

        try:
            await self._app(scope, counted, send)
        finally:
            body.end()


class _Body:
    """One that is being read, or answered."""

    def __init__(self, scope: Scope, shares: Shares) -> None:
        self._scope, self._shares = scope, shares
        self._read = self._marks = self._held = 0
        self._sender: str | None = None  # of what is held
        self._is_json = _kinds(scope) not in NO_JSON
        self.most = UPLOAD_BYTES if scope["path"] == UPLOADS else BODY_BYTES
        self.too_large = f"larger than {self.most >> 20} MiB; send less at once"

    def add(self, part: bytes) -> None:
        """Raises TooLarge, TooMany and Overloaded."""
        self._read += len(part)
        if self._read > self.most:
            raise TooLarge(self.too_large)
        if self._is_json:
            # Three bytes of JSON may become sixty in memory.
            self._marks += sum(map(part.count, (b"[", b"{", b",")))
            if self._marks > MARKS:
                raise TooLarge(f"more than {MARKS:,} brackets and commas; send less at once")
        caller = self._scope.get("state", {}).get("caller")  # known before a body is read
        if part and caller and caller.role != "admin":
            self._count(caller.name, len(part))

    def _count(self, sender: str, size: int) -> None:
        hourly = self._shares.bytes
        if wait := hourly.use(sender, size):
            most = f"{hourly.most >> 20} MiB an hour"
            raise TooMany(f"{sender} may send {most}; go on later", math.ceil(wait))
        more = min(size, IN_MEMORY - self._held)
        self._shares.bodies.take(sender, more)
        self._sender, self._held = sender, self._held + more

    def end(self) -> None:
        if self._sender is not None:
            self._shares.bodies.free(self._sender, self._held)


class BoundedForm(Request):
    """A request whose form has as many parts, and as large ones, as any route needs: all but the
    first megabyte of each file would lie in memory. Its charset is no sender's choice: of some,
    decoding takes the square of a text's length, and of others it gives what no answer can have."""

    def form(self, **_: object) -> AwaitableOrContextManager[FormData]:
        for kind in self.headers.getlist("content-type"):
            charset = parse_options_header(kind)[1].get(b"charset", b"utf-8")
            if charset.strip().lower() not in (b"utf-8", b"utf8"):
                raise HTTPException(400, "a form is read as UTF-8; send no other charset")
        files = INPUTS + 1  # more than may be, which the route says
        return super().form(max_files=files, max_fields=FIELDS, max_part_size=FIELD_BYTES)


def _declared(scope: Scope) -> int:
    """Bytes by Content-Length, the most where there are several; 0 where there is none."""
    found = Headers(scope=scope).getlist("content-length")
    return max((int(one[:20]) for one in found if one.isdecimal()), default=0)


def _kinds(scope: Scope) -> set[str]:
    """Content-Type without its parameters; all of them, for it is not said which one is heard."""
    found = Headers(scope=scope).getlist("content-type")
    return {one.partition(";")[0].strip().lower() for one in found}
