"""What is refused before it is used: too many bytes, pictures that would explode, endless texts."""

from __future__ import annotations

import base64
import io
import re
from enum import Enum
from typing import TypeVar, cast

from PIL import Image
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cluster.data.validation import checked_text
from tacl.errors import BadSample, TooLarge

T = TypeVar("T")

UPLOAD_BYTES = 1 << 30  # a data set
BODY_BYTES = 32 << 20  # any other request
IMAGE_BYTES = 10 << 20
IMAGE_PIXELS = 40_000_000  # a few kilobytes can unpack to gigabytes
TEXT_CHARACTERS = 20_000
INPUTS = 64
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")  # of the many that Pillow reads
UPLOADS = "/v1/tasks"

_PATH = re.compile(r"(?<![\w.])/(?:[^\s/:@?'\"()]+/)+([^\s/:@?'\"(),;]*)")


class Bounded:
    """ASGI: ends a request whose body grows over its limit, whatever its headers say."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        most = UPLOAD_BYTES if scope["path"] == UPLOADS else BODY_BYTES
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > most:
                # The only class that FastAPI lets through while it reads a body.
                raise HTTPException(413, f"larger than {most >> 20} MiB; send less at once")
            return message

        return await self._app(scope, counted, send)


def image(raw: bytes, where: str) -> bytes:
    """The bytes of a picture of a bearable size; decoded only where it is used."""
    if len(raw) > IMAGE_BYTES:
        raise TooLarge(f"{where}: {len(raw)} bytes; at most {IMAGE_BYTES >> 20} MiB")
    try:
        with Image.open(io.BytesIO(raw), formats=FORMATS) as found:
            width, height = found.size
    except Image.DecompressionBombError as error:
        raise TooLarge(f"{where}: at most {IMAGE_PIXELS:,} pixels") from error
    except Exception as error:  # decoders raise a dozen types on foreign bytes; all mean this
        raise BadSample(f"{where}: not a picture in one of {', '.join(FORMATS)}") from error
    if width * height > IMAGE_PIXELS:
        raise TooLarge(f"{where}: {width} x {height} pixels; at most {IMAGE_PIXELS:,}")
    return raw


def image_of_base64(text: str, where: str) -> bytes:
    try:
        return image(base64.b64decode(text, validate=True), where)
    except ValueError as error:  # binascii's own, or letters beyond ASCII
        raise BadSample(f"{where}: not base64") from error


def text(value: str, where: str) -> str:
    if len(value) > TEXT_CHARACTERS:
        raise TooLarge(f"{where}: {len(value)} characters; at most {TEXT_CHARACTERS:,}")
    return checked_text(value, where)


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
