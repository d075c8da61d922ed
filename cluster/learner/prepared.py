"""Rows of other tasks for steps: read when the first is requested, and prepared one by one, because
steps use few rows of most tasks.

Rows of many tasks would fill the memory of a machine, so a part of it holds the first ones and a
file the rest. For each row, its place is kept in memory as a number.
"""

from __future__ import annotations

import logging
import os
from array import array
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from struct import Struct
from tempfile import TemporaryFile
from typing import IO, overload
from zlib import crc32

import torch

from cluster.runtime import memory
from cluster.storage.samples import Raw
from tacl.backbone import Item
from tacl.errors import StorageUnavailable

ROOM = 256 << 20  # bytes of rows of one piece of work that stay in memory
BESIDE = 160  # bytes that Python takes for a row in memory, beside its content
SPARE = 1 << 30  # bytes of a disk that are left to others
SPARE_MEMORY = 10  # a tenth of the memory is left too: short of it, Ray kills the largest process
LARGE = 64 << 20  # bytes of originals of one task, which may take less once they are prepared
HEADER = Struct("<II")  # of a row in the file: its size and checksum
LOG = logging.getLogger(__name__)


class SpillBuffer:
    """Rows of all tasks of one piece of work, in memory while there is room, and then in a file in
    `folder`. The file has no name, so it need not be deleted; the system mostly has what is read of
    it in its page cache."""

    def __init__(self, folder: Path, room: int = ROOM) -> None:
        self._folder, self._room, self._end = folder, room, 0
        self._warned = False
        self._held: dict[int, bytes] = {}  # by where they would start in the file

    @cached_property
    def _file(self) -> IO[bytes]:
        self._folder.mkdir(parents=True, exist_ok=True)
        return TemporaryFile(dir=self._folder, buffering=0)

    def put(self, row: bytes) -> int:
        """Stores a row; returns its place, for `get`. If the file cannot be written, the row stays
        in memory while the machine has some to spare; else StorageUnavailable is raised."""
        place, self._end = self._end, self._end + HEADER.size + len(row)
        if len(row) + BESIDE > self._room:
            try:
                self._write(HEADER.pack(len(row), _checksum(row, place)) + row, place)
                return place
            except OSError as error:
                self._require_memory(error)
        self._room -= len(row) + BESIDE
        self._held[place] = row
        return place

    def _require_memory(self, error: OSError) -> None:
        """Raises StorageUnavailable if memory is short too; the disk is tried again for later
        rows."""
        if memory.free() < memory.limit() // SPARE_MEMORY:
            raise StorageUnavailable(
                f"rows of other tasks have no room: {error}, and this machine has little memory "
                f"left. Free {SPARE >> 30} GiB of the disk of {self._folder}, then try again"
            ) from error
        if not self._warned:
            LOG.warning("rows of other tasks stay in memory: %s", error)
            self._warned = True

    def _write(self, row: bytes, place: int) -> None:
        file = self._file.fileno()
        disk = os.fstatvfs(file)
        if disk.f_bavail * disk.f_frsize < SPARE or os.pwrite(file, row, place) < len(row):
            raise OSError(f"the disk of {self._folder} is nearly full")

    def get(self, place: int) -> bytes:
        """The row at `place`; raises StorageUnavailable if the disk fails or gives other bytes."""
        if (held := self._held.get(place)) is not None:
            return held
        try:
            file = self._file.fileno()
            header = os.pread(file, HEADER.size, place).ljust(HEADER.size, b"\0")
            size, checksum = HEADER.unpack(header)
            end = place + HEADER.size + size
            row = os.pread(file, size, place + HEADER.size) if end <= self._end else b""
        except OSError as error:
            raise StorageUnavailable(f"a row of another task cannot be read: {error}") from error
        if _checksum(row, place) != checksum:
            raise StorageUnavailable("a row of another task is not what was written of it")
        return row

    def drop(self, place: int) -> None:
        """Frees a row that is not needed again."""
        if (held := self._held.pop(place, None)) is not None:
            self._room += len(held) + BESIDE


def _checksum(row: bytes, place: int) -> int:
    """A checksum that differs by place; zeros, which a disk may give for lost data, never match."""
    return crc32(row, place + 1)


class Prepared(Sequence[Item]):
    """The rows that `read` returns, prepared. Originals of more than LARGE bytes are all prepared
    at once if they then take less, as a phone's photographs do."""

    def __init__(
        self, read: Callable[[], Sequence[Raw]], prepare: Callable[[Raw], Item], spill: SpillBuffer
    ) -> None:
        self._read, self._prepare, self._spill = read, prepare, spill
        self._is_text = False

    @cached_property
    def _places(self) -> array[int]:
        """The place of every prepared row; until it is prepared, of its original, inverted (~)."""
        raws = self._read()
        size = sum(map(len, raws))
        self._is_text = any(isinstance(raw, str) for raw in raws)
        if size > LARGE and len(raws) * (first := self._prepare(raws[0])).nbytes < size:
            rest = (self._prepare(raw) for raw in raws[1:])
            return array("q", map(self._put, chain([first], rest)))
        encoded = (raw.encode() if isinstance(raw, str) else raw for raw in raws)
        return array("q", (~self._spill.put(raw) for raw in encoded))

    def _put(self, item: Item) -> int:
        self._like = item
        return self._spill.put(item.numpy().tobytes())

    def _again(self, place: int) -> Item:
        """The prepared row at `place`. Pictures have one shape; texts differ in length."""
        like, row = self._like, bytearray(self._spill.get(place))
        if not row:  # a text without tokens
            return like[:0]
        return torch.frombuffer(row, dtype=like.dtype).view(like.shape if like.ndim > 1 else (-1,))

    def __del__(self) -> None:
        """Frees the rows, as when samples are added and a new object replaces this one."""
        for place in vars(self).get("_places", ()):
            self._spill.drop(max(place, ~place))

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, row: int) -> Item: ...
    @overload
    def __getitem__(self, row: slice) -> list[Item]: ...
    def __getitem__(self, row: int | slice) -> Item | list[Item]:
        if isinstance(row, slice):
            return [self[one] for one in range(*row.indices(len(self)))]
        if (place := self._places[row]) >= 0:
            return self._again(place)
        raw = self._spill.get(~place)
        item = self._prepare(raw.decode() if self._is_text else raw)
        self._places[row] = self._put(item)  # last: a row that failed may be requested again
        self._spill.drop(~place)
        return item
