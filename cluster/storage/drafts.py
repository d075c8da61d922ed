"""Files that appear whole or not at all, and the drafts that they are written to.

A writer holds a lock, which ends with its process: that tells a draft left by a killed process from
one that is being written.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

DRAFTS = "drafts"  # the folder of a place for its drafts
HELD = "held"  # of a folder among them: the file that its process locks
YOUNG = 60.0  # seconds before a draft can count as left: it may not be locked yet


@contextmanager
def atomic_path(path: Path, folder: Path | None = None) -> Iterator[Path]:
    """A draft that replaces `path` if the block ends without error, and is deleted otherwise; in
    `folder`, on the same disk, or beside `path`."""
    draft = (folder or path.parent) / f".{path.name}.{uuid.uuid4().hex}"
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def atomic_write(path: Path, folder: Path | None = None) -> Iterator[BinaryIO]:
    """A stream to a draft that replaces `path` if the block ends without error, and survives a
    power failure: the rename itself survives only if its directory is flushed too."""
    with ExitStack() as held, atomic_path(path, folder) as draft:
        stream = held.enter_context(draft.open("xb"))  # closed once the draft has replaced `path`
        _hold(stream)
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def scratch(place: Path) -> Iterator[Path]:
    """An empty folder among the drafts of `place`, for the time of the block. /tmp may be too small
    for its files, and would keep those of a killed process for ever."""
    (place / DRAFTS).mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as made:
        folder = Path(made.enter_context(tempfile.TemporaryDirectory(dir=place / DRAFTS)))
        _hold(made.enter_context((folder / HELD).open("xb")))
        (folder / "files").mkdir()
        yield folder / "files"


def abandoned(place: Path) -> Iterator[Path]:
    """The drafts of `place`, files and folders, whose process has ended."""
    yield from filter(_is_left, (place / DRAFTS).glob("*"))


def _hold(stream: BinaryIO) -> None:
    with suppress(OSError):  # a disk without locks: nothing there ever counts as left
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_left(path: Path) -> bool:
    held = path / HELD if path.is_dir() else path
    try:
        if path != held and not held.exists():  # the process that made, or deletes, it was killed
            return _is_old(path.stat())
        with held.open("r+b") as stream:
            is_old = _is_old(os.fstat(stream.fileno()))
            if is_old:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return is_old
    except OSError:  # it was renamed meanwhile, is locked, or is on a disk without locks
        return False


def _is_old(found: os.stat_result) -> bool:
    return time.time() - found.st_mtime > YOUNG
