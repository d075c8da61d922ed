"""Limits on request bodies: bytes are counted as they arrive, whatever length was declared."""

from __future__ import annotations

import asyncio

from fastapi import Request
from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import AwaitableOrContextManager, FormData
from starlette.types import Message

from cluster.api.limits import INPUTS
from cluster.api.shares import shares_of
from cluster.data.amounts import TEXT_CHARACTERS
from cluster.data.answers import ARROW
from cluster.errors import http_status
from tacl.errors import TaclError, TooLarge

UPLOAD_BYTES = 1 << 30  # a data set
BODY_BYTES = 32 << 20  # any other request
UPLOADS = "/v1/tasks"
SILENT = 30.0  # seconds without a byte after which a body is given up
IN_MEMORY = 64 << 20  # bytes of a body that are in memory at most; files go to the disk
MARKS = TEXT_CHARACTERS  # brackets and commas of a JSON body, those in its strings included
FIELDS = 1100  # of a form: a thousand terms, and the other fields
FIELD_BYTES = 64 << 10
NO_JSON = ({"multipart/form-data"}, {ARROW})  # one of them alone, without another content type


class BoundedRequest(Request):
    """A request whose body is refused if its declared length is over the limit, and cut off when it
    grows over the limit or over what is left of its sender's share, or when nothing arrives any
    more: it would keep its place among the requests. `sender`: None for an admin, whose bytes are
    not counted.

    A form may have as many parts, and as large ones, as any route needs: all but the first megabyte
    of each file would be in memory. The sender may not choose its charset: decoding some takes time
    quadratic in the length of a text, and others yield text that no answer can contain."""

    def __init__(self, request: Request, sender: str | None) -> None:
        """Raises TooLarge if the declared length is over the limit."""
        super().__init__(request.scope, self._counted)
        self._given, self._sender, self._shares = request.receive, sender, shares_of(request)
        self._read = self._marks = self._held = 0
        self._is_json = _kinds(self.headers) not in NO_JSON
        self._most = UPLOAD_BYTES if self.scope["path"] == UPLOADS else BODY_BYTES
        self._require_small(_declared(self.headers))

    async def _counted(self) -> Message:
        try:
            async with asyncio.timeout(SILENT):
                message = await self._given()
        except TimeoutError as error:
            why = f"nothing of the body arrived for {SILENT:g} s; send the request again"
            raise HTTPException(408, why, {"connection": "close"}) from error
        try:
            self._add(message.get("body", b""))
        except TaclError as error:  # the only class that FastAPI lets through from reading a body
            raise HTTPException(http_status(error), str(error)) from error
        return message

    def _add(self, part: bytes) -> None:
        """Raises TooLarge, TooMany and Overloaded."""
        self._read += len(part)
        self._require_small(self._read)
        if self._is_json:
            # Three bytes of JSON may take sixty in memory.
            self._marks += sum(map(part.count, (b"[", b"{", b",")))
            if self._marks > MARKS:
                raise TooLarge(f"more than {MARKS:,} brackets and commas; send less at once")
        if part and self._sender is not None:
            self._shares.bytes.require(self._sender, len(part), "bytes")
            more = min(len(part), IN_MEMORY - self._held)
            self._shares.bodies.take(self._sender, more)
            self._held += more

    def _require_small(self, size: int) -> None:
        if size > self._most:
            raise TooLarge(f"larger than {self._most >> 20} MiB; send less at once")

    def free(self) -> None:
        """Give back the memory share of the body: the request has been answered."""
        if self._sender is not None:
            self._shares.bodies.free(self._sender, self._held)

    def form(self, **_: object) -> AwaitableOrContextManager[FormData]:
        for kind in self.headers.getlist("content-type"):
            charset = parse_options_header(kind)[1].get(b"charset", b"utf-8")
            if charset.strip().lower() not in (b"utf-8", b"utf8"):
                raise HTTPException(400, "a form is read as UTF-8; send no other charset")
        files = INPUTS + 1  # one too many gets through, so that the route can refuse it
        return super().form(max_files=files, max_fields=FIELDS, max_part_size=FIELD_BYTES)


def _declared(headers: Headers) -> int:
    """The Content-Length in bytes, the largest if there are several; 0 if there is none."""
    found = headers.getlist("content-length")
    return max((int(one[:20]) for one in found if one.isdecimal()), default=0)


def _kinds(headers: Headers) -> set[str]:
    """Every Content-Type without its parameters: if there are several, it is not defined which one
    a parser takes."""
    found = headers.getlist("content-type")
    return {one.partition(";")[0].strip().lower() for one in found}
