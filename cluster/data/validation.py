"""One row at a time: is it a picture, is it a text? What passes here, every learner can read."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from tacl.errors import BadSample


def checked_image(value: object, where: str) -> bytes:
    """The original bytes of a picture, after decoding all of it once. BadSample if that fails."""
    raw, path = value, None
    if isinstance(value, dict):
        raw, path = value.get("bytes"), value.get("path")
    where = f"{where} ({Path(path).name})" if path else where
    try:
        if raw is None and path:
            raw = Path(path).read_bytes()
        if not isinstance(raw, bytes) or not raw:
            raise BadSample(f"{where}: the picture is empty")
        with Image.open(io.BytesIO(raw)) as image:
            image.load()
    except BadSample:
        raise
    except Exception as error:  # decoders raise OSError, SyntaxError, ValueError, struct.error ...
        reason = str(error).replace(repr(error.args[0]), "") if not error.args else str(error)
        raise BadSample(f"{where}: not a readable picture: {reason}") from error
    return raw


def checked_text(value: object, where: str) -> str:
    """A text that says something. BadSample for nothing, numbers, blanks and binary garbage."""
    if not isinstance(value, str):
        found = "nothing" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"
        raise BadSample(f"{where}: found {found} where a text should be")
    if not value.strip():
        raise BadSample(f"{where}: the text is blank")
    if "\x00" in value:
        raise BadSample(f"{where}: binary data where a text should be: {value[:40]!r}")
    return value
