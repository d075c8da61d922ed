"""What is read of a body, and no more: counted as it arrives, whoever says what its length is."""

from __future__ import annotations

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
IN_MEMORY = 64 << 20  # bytes of a body that lie in memory at the most; files go to the disk
MARKS = TEXT_CHARACTERS  # brackets and commas of JSON, its texts included
FIELDS = 1100  # of a form: a thousand terms, and what else there is
FIELD_BYTES = 64 << 10
NO_JSON = ({"multipart/form-data"}, {ARROW})  # and no other kind beside it


class BoundedRequest(Request):
    """A request whose body is refused where it says that it is over its limit, and ends where it
    grows over it, or over what is left of its sender's share. `sender`: None for an admin, whose
    bytes are not counted.

    Its form has as many parts, and as large ones, as any route needs: all but the first megabyte of
    each file would lie in memory. Its charset is no sender's choice: of some, decoding takes the
    square of a text's length, and of others it gives what no answer can have."""

    def __init__(self, request: Request, sender: str | None) -> None:
        """Raises TooLarge."""
        super().__init__(request.scope, self._counted)
        self._given, self._sender, self._shares = request.receive, sender, shares_of(request)
        self._read = self._marks = self._held = 0
        self._is_json = _kinds(self.headers) not in NO_JSON
        self._most = UPLOAD_BYTES if self.scope["path"] == UPLOADS else BODY_BYTES
        self._require_small(_declared(self.headers))

    async def _counted(self) -> Message:
        message = await self._given()
        try:
            self._add(message.get("body", b""))
        except TaclError as error:  # FastAPI lets no other class through while it reads a body
            raise HTTPException(http_status(error), str(error)) from error
        return message

    def _add(self, part: bytes) -> None:
        """Raises TooLarge, TooMany and Overloaded."""
        self._read += len(part)
        self._require_small(self._read)
        if self._is_json:
            # Three bytes of JSON may become sixty in memory.
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
        """It is answered."""
        if self._sender is not None:
            self._shares.bodies.free(self._sender, self._held)

    def form(self, **_: object) -> AwaitableOrContextManager[FormData]:
        for kind in self.headers.getlist("content-type"):
            charset = parse_options_header(kind)[1].get(b"charset", b"utf-8")
            if charset.strip().lower() not in (b"utf-8", b"utf8"):
                raise HTTPException(400, "a form is read as UTF-8; send no other charset")
        files = INPUTS + 1  # more than may be, which the route says
        return super().form(max_files=files, max_fields=FIELDS, max_part_size=FIELD_BYTES)


def _declared(headers: Headers) -> int:
    """Bytes by Content-Length, the most where there are several; 0 where there is none."""
    found = headers.getlist("content-length")
    return max((int(one[:20]) for one in found if one.isdecimal()), default=0)


def _kinds(headers: Headers) -> set[str]:
    """Content-Type without its parameters; all of them, for it is not said which one is heard."""
    found = headers.getlist("content-type")
    return {one.partition(";")[0].strip().lower() for one in found}
