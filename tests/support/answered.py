"""The answer of an ASGI application, and how much of a body it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

from fastapi import FastAPI


class Told(NamedTuple):
    status: int
    headers: dict[str, str]
    read: int  # how often the body was read
    body: bytes


Sent = Mapping[str, str] | Sequence[tuple[str, str]]  # headers; a name may occur more than once


def told(app: FastAPI, method: str, path: str, sent: Sent, body: Sequence[bytes]) -> Told:
    """Send a request, whose body is read piece by piece, and return the answer."""
    pieces, read, answer, text = iter(body), 0, {}, bytearray()

    async def receive() -> dict[str, Any]:
        nonlocal read
        if answer:
            return {"type": "http.disconnect"}
        read += 1
        return {"type": "http.request", "body": next(pieces, b""), "more_body": read < len(body)}

    async def send(message: MutableMapping[str, Any]) -> None:
        answer.update({"at": message} if "status" in message else {})
        text.extend(message.get("body", b""))

    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": []}
    given = list(sent.items() if isinstance(sent, Mapping) else sent)
    given = given if "host" in dict(given) else [("host", "localhost"), *given]
    scope["headers"] = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in given]
    asyncio.run(app(scope, receive, send))
    found = answer["at"]
    named = {name.decode(): value.decode() for name, value in found["headers"]}
    return Told(found["status"], named, read, bytes(text))
