"""A file that is there whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A draft that takes the place of `path` when the block ends well, else goes."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """To write a file that takes the place of `path` when the block ends well, and stays there
    whatever the power does: the rename itself survives only when its directory is flushed too."""
    with beside(path) as draft, draft.open("xb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
