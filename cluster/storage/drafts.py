"""A file that is there whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A draft that takes the place of `path` when the block ends well, else goes."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def flush_directory(folder: Path) -> None:
    """The rename itself survives a power cut only when the directory was flushed too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
