"""One row at a time: is it a picture, is it a text? What passes here, every learner can read."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from tacl.errors import BadSample

IMAGE_FILE_BYTES = 100 << 20  # of a picture's file


def checked_image(value: object, where: str, folders: Sequence[Path] = ()) -> bytes:
    """The original bytes of a picture, after decoding all of it once. BadSample if that fails.

    A row that names a file instead of holding bytes is read only where that is a regular file below
    one of `folders`, links followed; without a folder no file is opened.
    """
    raw, path = value, None
    if isinstance(value, dict):
        raw, path = value.get("bytes"), value.get("path")
    where = f"{where} ({Path(path).name})" if path else where
    if raw is None and path:
        raw = _file_bytes(Path(path), where, folders)
    try:
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


def _file_bytes(path: Path, where: str, folders: Sequence[Path]) -> bytes:
    """One message for all that may not be read: a row tells nothing of other files."""
    refused = BadSample(
        f"{where}: the row names a file and holds no picture; give its bytes, or a folder of "
        "pictures that the file is in"
    )
    real = path.resolve()
    if not any(real.is_relative_to(folder.resolve()) for folder in folders) or not real.is_file():
        raise refused
    try:
        with open(real, "rb", opener=_without_waiting) as file:
            raw = file.read(IMAGE_FILE_BYTES + 1)
    except OSError as error:
        raise refused from error
    if len(raw) > IMAGE_FILE_BYTES:
        raise BadSample(f"{where}: a file of more than {IMAGE_FILE_BYTES >> 20} MiB")
    return raw


def _without_waiting(path: str, flags: int) -> int:
    """A file that became a link or a pipe meanwhile is neither followed nor waited for."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


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
