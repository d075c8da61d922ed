"""What is refused before it is used: too many bytes, pixels or characters; the budget is
`cluster.data.budget`."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Sequence
from enum import Enum
from typing import TypeVar, cast

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cluster.api.shares import Hourly
from cluster.data.budget import REQUEST, Amount, Spent
from cluster.data.validation import checked_text, measured_image
from tacl.errors import BadSample, TooLarge

T = TypeVar("T")

UPLOAD_BYTES = 1 << 30  # a data set
BODY_BYTES = 32 << 20  # any other request
INPUTS = 64
EXPLAINED = 16  # inputs: each is as many rows as the model has vectors
UPLOADS = "/v1/tasks"

_PATH = re.compile(r"(?<![\w.])/(?:[^\s/:@?'\"()]+/)+([^\s/:@?'\"(),;]*)")


class Bounded:
    """ASGI: refuses a body that says it is over its limit, and ends one that grows over it, or over
    what is left of its sender's hour."""

    def __init__(self, app: ASGIApp, hourly: Hourly) -> None:
        self._app, self._hourly = app, hourly

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        most = UPLOAD_BYTES if scope["path"] == UPLOADS else BODY_BYTES
        too_large = f"larger than {most >> 20} MiB; send less at once"
        if _declared(scope) > most:
            raise TooLarge(too_large)
        read = 0

        async def counted() -> Message:
            # HTTPException is the only class that FastAPI lets through while it reads a body.
            nonlocal read
            message = await receive()
            read += (size := len(message.get("body", b"")))
            if read > most:
                raise HTTPException(413, too_large)
            caller = scope.get("state", {}).get("caller")
            counts = size and caller and caller.role != "admin"
            if counts and (wait := self._hourly.use(caller.name, size)):
                most_sent = f"{self._hourly.most >> 20} MiB an hour"
                retry = {"retry-after": str(math.ceil(wait))}
                raise HTTPException(429, f"{caller.name} may send {most_sent}; go on later", retry)
            return message

        return await self._app(scope, counted, send)


def _declared(scope: Scope) -> int:
    """Bytes by Content-Length; 0 where there is none."""
    found = dict(scope["headers"]).get(b"content-length", b"")
    return int(found[:20]) if found.isdigit() else 0


def image_of_base64(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:  # binascii's own, or letters beyond ASCII
        raise BadSample(f"{where}: not base64") from error


def weighed(inputs: Sequence[bytes | str]) -> Amount:
    """What the inputs of a request are when they are decoded, which is done only where they are
    used. BadSample, TooLarge."""
    spent = Spent(REQUEST)
    for place, one in enumerate(inputs):
        if isinstance(one, str):
            checked_text(one, f"input {place}", spent)
        else:
            measured_image(one, f"input {place}", spent)
    return spent.total


def without_paths(found: T) -> T:
    """The same with every absolute path shortened to its last name: no answer tells more."""
    return cast(T, _shortened(found))


def _shortened(found: object) -> object:
    if isinstance(found, str) and not isinstance(found, Enum):
        return _PATH.sub(r"…/\1", found)
    if isinstance(found, BaseModel):
        return found.model_copy(update={name: _shortened(value) for name, value in found})
    if isinstance(found, dict):
        return {key: _shortened(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return type(found)(map(_shortened, found))
    return found
