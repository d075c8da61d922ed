"""Checks one row at a time, a picture or a text: what passes here, every learner can read."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, UnidentifiedImageError
from PIL.ImageFile import ImageFile

from cluster.data import amounts
from cluster.data.amounts import Amount, DecodedSoFar
from tacl.errors import BadSample, TooLarge


class _Counted(io.BytesIO):
    """The bytes of a picture, for a decoder that reads them in a bearable number of parts."""

    def __init__(self, raw: bytes) -> None:
        super().__init__(raw)
        self._left = amounts.PICTURE_PARTS + len(raw) // 256

    def read(self, size: int | None = -1, /) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise OSError("it is made of too many parts")
        return super().read(size)


def measured_image(raw: bytes, where: str, spent: DecodedSoFar) -> bytes:
    """The bytes of a picture, of which only the header is read. Raises BadSample, and TooLarge if
    it must not be decoded."""
    with _opened(raw, where, spent):
        return raw


def checked_image(
    value: object, where: str, folders: Sequence[Path] = (), spent: DecodedSoFar | None = None
) -> bytes:
    """The original bytes of a picture, after decoding all of it once. BadSample if that fails,
    TooLarge for what may not be decoded.

    A row that names a file instead of holding bytes is read only if that file, all links followed,
    is a regular one below one of `folders`, whose own links were followed; without a folder no file
    is opened.
    """
    raw, path = value, None
    if isinstance(value, dict):
        raw, path = value.get("bytes"), value.get("path")
        path = path if isinstance(path, str) else None
    where = f"{where} ({Path(path).name})" if path else where
    if raw is None and path:
        raw = _file_bytes(Path(path), where, folders)
    if not isinstance(raw, bytes) or not raw:
        raise BadSample(f"{where}: the picture is empty")
    with _opened(raw, where, spent or DecodedSoFar()) as image:
        image.load()
    return raw


@contextmanager
def _opened(raw: bytes, where: str, spent: DecodedSoFar) -> Iterator[ImageFile]:
    """A picture whose header was read and is within the limits. What its decoder raises in the
    block becomes BadSample, or TooLarge."""
    if len(raw) > amounts.PICTURE_BYTES:
        raise TooLarge(f"{where}: more than {amounts.PICTURE_BYTES >> 20} MiB")
    try:
        with Image.open(_Counted(raw), formats=amounts.FORMATS) as image:
            spent.add(Amount(pixels=image.width * image.height), where)
            if max(image.size) > amounts.PICTURE_ASPECT * min(image.size):
                raise BadSample(
                    f"{where}: {image.width} x {image.height} pixels are too long a strip"
                )
            if image.mode == "F" or (image.mode == "I" and image.format not in amounts.GREY_16):
                raise BadSample(
                    f"{where}: a picture of 32-bit numbers, of which it is not known which one is "
                    "white; save it with 8 or 16 bits"
                )
            if image.format == "JPEG" and raw.count(b"\xff\xda") > amounts.JPEG_SCANS:
                raise TooLarge(f"{where}: a JPEG of more than {amounts.JPEG_SCANS} scans")
            yield image
    except (TooLarge, BadSample):
        raise
    except UnidentifiedImageError as error:
        raise BadSample(
            f"{where}: not a readable picture in one of {', '.join(amounts.FORMATS)}"
        ) from error
    except Image.DecompressionBombError as error:
        raise TooLarge(f"{where}: more than {amounts.PICTURE_PIXELS:,} pixels") from error
    except Exception as error:  # decoders raise OSError, SyntaxError, ValueError, struct.error ...
        raise BadSample(f"{where}: not a readable picture: {error}") from error


def _file_bytes(path: Path, where: str, folders: Sequence[Path]) -> bytes:
    """The bytes of the file that a row names. Raises the same BadSample for all that must not be
    read, so that a row reveals nothing about other files."""
    refused = BadSample(
        f"{where}: the row names a file and holds no picture; give its bytes, or a folder of "
        "pictures that the file is in"
    )
    try:
        real = Path(os.path.realpath(path))
        if not any(real.is_relative_to(folder) for folder in folders) or not real.is_file():
            raise refused
        with open(real, "rb", opener=_without_waiting) as file:
            raw = file.read(amounts.PICTURE_BYTES + 1)
    except (OSError, ValueError, RecursionError) as error:  # no name of a file, or endless links
        raise refused from error
    if len(raw) > amounts.PICTURE_BYTES:
        raise TooLarge(f"{where}: a file of more than {amounts.PICTURE_BYTES >> 20} MiB")
    return raw


def _without_waiting(path: str, flags: int) -> int:
    """A file that became a link or a pipe meanwhile is neither followed nor waited for."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def checked_text(value: object, where: str, spent: DecodedSoFar | None = None) -> str:
    """The text itself. Raises BadSample for anything but text, for blanks and for binary garbage,
    TooLarge for a text that is too long."""
    if not isinstance(value, str):
        found = "nothing" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"
        raise BadSample(f"{where}: found {found} where a text should be")
    if not value.strip():
        raise BadSample(f"{where}: the text is blank")
    if "\x00" in value:
        raise BadSample(f"{where}: binary data where a text should be: {value[:40]!r}")
    (spent or DecodedSoFar()).add(Amount(characters=len(value)), where)
    try:
        value.encode()
    except UnicodeEncodeError:  # as from a shell, given bytes of another encoding
        raise BadSample(f"{where}: {value[:40]!r} is no UTF-8; give it in UTF-8") from None
    return value
