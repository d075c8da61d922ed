"""Rows of other tasks, as steps see them: read when the first is asked for, prepared one by one,
for of most tasks steps see few.

Pictures of many tasks would fill the memory of a machine: a share of it holds what comes first, a
file the rest.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple, overload
from zlib import crc32

import torch

from cluster.storage.samples import Raw
from tacl.backbone import Item
from tacl.errors import StorageUnavailable

ROOM = 256 << 20  # bytes of rows of one piece of work that stay in memory
LARGE = 64 << 20  # of the originals of one task, which may take less once they are prepared
LOG = logging.getLogger(__name__)


class FileSpan(NamedTuple):
    """Of a row in a file."""

    start: int
    size: int
    checksum: int


Kept = bytes | FileSpan


class Shelf:
    """Rows of all tasks of one piece of work, in memory while there is room, and then in a file of
    `folder`. It has no name, so nobody needs to delete it; what is read of it again is mostly in
    memory that the machine can spare."""

    def __init__(self, folder: Path, room: int = ROOM) -> None:
        self._folder, self._room, self._end = folder, room, 0

    @cached_property
    def _file(self) -> IO[bytes]:
        self._folder.mkdir(parents=True, exist_ok=True)
        return TemporaryFile(dir=self._folder, buffering=0)

    def put(self, row: bytes) -> Kept:
        """How it is found again; the row itself also where no file can be written."""
        if len(row) <= self._room:
            self._room -= len(row)
            return row
        try:
            if os.pwrite(self._file.fileno(), row, self._end) < len(row):
                raise OSError("the disk is full")
        except OSError as error:
            LOG.warning("rows of other tasks stay in memory: %s", error)
            self._room = sys.maxsize
            return row
        self._end += len(row)
        return FileSpan(self._end - len(row), len(row), crc32(row))

    def get(self, kept: Kept) -> bytes:
        """StorageUnavailable where a disk gives something else."""
        if isinstance(kept, bytes):
            return kept
        row = os.pread(self._file.fileno(), kept.size, kept.start)
        if crc32(row) != kept.checksum:
            raise StorageUnavailable("a row of another task is not what was written of it")
        return row


class Prepared(Sequence[Item]):
    """The rows that `read` gives. Originals of more than LARGE bytes are prepared together where
    they take less then, as photographs of a phone do."""

    def __init__(
        self, read: Callable[[], Sequence[Raw]], prepare: Callable[[Raw], Item], shelf: Shelf
    ) -> None:
        self._read, self._prepare, self._shelf = read, prepare, shelf
        self._prepared: dict[int, Kept] = {}
        self._is_text = False

    @cached_property
    def _raws(self) -> list[Kept | None]:
        """Originals of what is not prepared yet."""
        raws = self._read()
        size = sum(map(len, raws))
        self._is_text = any(isinstance(raw, str) for raw in raws)
        if size > LARGE and len(raws) * self._kept(0, raws[0]).nbytes < size:
            for row, raw in enumerate(raws[1:], 1):
                self._kept(row, raw)
            return [None] * len(raws)
        return [self._shelf.put(raw.encode() if isinstance(raw, str) else raw) for raw in raws]

    def _kept(self, row: int, raw: Raw) -> Item:
        self._like = item = self._prepare(raw)
        self._prepared[row] = self._shelf.put(item.numpy().tobytes())
        return item

    def _again(self, kept: Kept) -> Item:
        """Pictures have one shape, texts their lengths."""
        like, row = self._like, bytearray(self._shelf.get(kept))
        if not row:  # of a text without tokens
            return like[:0]
        return torch.frombuffer(row, dtype=like.dtype).view(like.shape if like.ndim > 1 else (-1,))

    def __len__(self) -> int:
        return len(self._raws)

    @overload
    def __getitem__(self, row: int) -> Item: ...
    @overload
    def __getitem__(self, row: slice) -> list[Item]: ...
    def __getitem__(self, row: int | slice) -> Item | list[Item]:
        if isinstance(row, slice):
            return [self[one] for one in range(*row.indices(len(self)))]
        original, row = self._raws[row], range(len(self))[row]
        if original is None:
            return self._again(self._prepared[row])
        raw = self._shelf.get(original)
        item = self._kept(row, raw.decode() if self._is_text else raw)
        self._raws[row] = None  # not before: to ask again for a row that failed is allowed
        return item
