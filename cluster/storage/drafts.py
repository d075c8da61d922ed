"""A file that is there whole or not at all, and what is on its way.

Whoever writes holds a lock, which ends with the process: so what one left that was killed is told
from what another is writing.
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

DRAFTS = "drafts"  # of a place: its folder for what is on its way
HELD = "held"  # of a folder among them: the file that its process holds
YOUNG = 60.0  # seconds for which nothing is taken for left: it may not be held yet


@contextmanager
def atomic_path(path: Path, folder: Path | None = None) -> Iterator[Path]:
    """A draft that takes the place of `path` when the block ends well, else goes; in `folder`, on
    the same disk, or beside it."""
    draft = (folder or path.parent) / f".{path.name}.{uuid.uuid4().hex}"
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def atomic_write(path: Path, folder: Path | None = None) -> Iterator[BinaryIO]:
    """To write a file that takes the place of `path` when the block ends well, and stays there
    whatever the power does: the rename itself survives only when its directory is flushed too."""
    with ExitStack() as held, atomic_path(path, folder) as draft:
        stream = held.enter_context(draft.open("xb"))  # until it has its place
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
    """An empty folder among the drafts of `place`, for as long as the block: what lies there may be
    too much for /tmp, where what a process leaves that is killed stays for ever."""
    (place / DRAFTS).mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as made:
        folder = Path(made.enter_context(tempfile.TemporaryDirectory(dir=place / DRAFTS)))
        _hold(made.enter_context((folder / HELD).open("xb")))
        (folder / "files").mkdir()
        yield folder / "files"


def left(place: Path) -> Iterator[Path]:
    """Of its drafts, files and folders, those whose process is no more."""
    yield from filter(_is_left, (place / DRAFTS).glob("*"))


def _hold(stream: BinaryIO) -> None:
    with suppress(OSError):  # a disk without locks: there nothing is ever taken for left
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_left(path: Path) -> bool:
    held = path / HELD if path.is_dir() else path
    try:
        if path != held and not held.exists():  # whoever made the folder, or deletes it, was killed
            return _is_old(path.stat())
        with held.open("r+b") as stream:
            is_old = _is_old(os.fstat(stream.fileno()))
            if is_old:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return is_old
    except OSError:  # it has its place by now, is held, or lies on a disk without locks
        return False


def _is_old(found: os.stat_result) -> bool:
    return time.time() - found.st_mtime > YOUNG
