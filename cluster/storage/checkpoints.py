"""Checkpoints of one run: folders named by step, each complete or absent. The newest two are kept.

They are on storage that every node of the run sees: a shared directory, where a rename makes one
complete, or a bucket, where a mark does that is written last.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow.fs

from cluster import failpoints
from cluster.storage.drafts import scratch
from cluster.storage.filesystem import Storage
from cluster.storage.home import Home

KEPT = 2
MARK = ".complete"
SEAL = "sums.json"  # checksum of every other file


class Checkpoint(NamedTuple):
    """A complete checkpoint, for reading."""

    step: int
    folder: Path


def checkpoints(home: Home, run_id: str) -> Checkpoints:
    """The checkpoints of a run."""
    storage = home.checkpoints
    if storage.is_local:
        return Checkpoints(Path(storage.root) / run_id)
    return RemoteCheckpoints(storage.below(run_id), home.path / "cache")


def runs(home: Home) -> list[str]:
    """The ids of the runs that have any."""
    storage = home.checkpoints
    selector = pyarrow.fs.FileSelector(storage.root, allow_not_found=True)
    with storage.reaching():
        return [folder.base_name for folder in storage.filesystem.get_file_info(selector)]


class Checkpoints:
    """Checkpoints as `folder`/STEP in a shared directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def newest(self) -> Iterator[Checkpoint | None]:
        """The newest complete checkpoint, for the time of the block, or None; one with altered
        files does not count."""
        for step in reversed(self._steps()):
            with self.opened(step) as folder:
                if _is_sealed(folder):
                    yield Checkpoint(step, folder)
                    return
        yield None

    @contextmanager
    def opened(self, step: int) -> Iterator[Path]:
        """The folder of a complete checkpoint, to be read within the block."""
        yield self._place(step)

    @contextmanager
    def writing(self, step: int) -> Iterator[Path]:
        """An empty folder for a checkpoint, which is complete once the block has ended without
        error; older ones are deleted then."""
        folder = self._folder / f".{step}.writing"
        shutil.rmtree(folder, ignore_errors=True)  # of an attempt that died while it wrote
        folder.mkdir(parents=True)
        try:
            yield folder
            self._complete(step, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def write(self, step: int, save: Callable[[Path], None]) -> None:
        """Write a whole checkpoint: `save` writes its files into the folder."""
        with self.writing(step) as folder:
            save(folder)

    def _complete(self, step: int, written: Path) -> None:
        """Make it visible, by a rename."""
        place = self._place(step)
        _seal(written)
        if place.exists() and _is_sealed(place):  # of an earlier attempt, with the same content
            shutil.rmtree(written)
        else:
            shutil.rmtree(place, ignore_errors=True)
            failpoints.reached("checkpoint written")
            written.rename(place)
            failpoints.reached("checkpoint complete")
        for old in self._old(step):
            shutil.rmtree(self._place(old))

    def clear(self) -> None:
        """Delete all checkpoints of a run that has its result. OSError if something remains."""
        for last in (False, False, True):
            try:
                shutil.rmtree(self._folder)
            except FileNotFoundError:  # a learner that ends deletes old ones, too
                if last and self._folder.exists():
                    raise
        failpoints.reached("checkpoints cleared")

    def _old(self, written: int) -> list[int]:
        """All but the newest and the one just written, which is older than those that were altered
        and therefore passed over."""
        return [step for step in self._steps()[:-KEPT] if step != written]

    def _place(self, step: int) -> Path:
        return self._folder / str(step)

    def _steps(self) -> list[int]:
        if not self._folder.is_dir():
            return []
        return sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdigit())


class RemoteCheckpoints(Checkpoints):
    """STEP/... and STEP.complete in a bucket; files pass through a folder of the cache."""

    def __init__(self, storage: Storage, cache: Path) -> None:
        self._storage, self._files, self._cache = storage, storage.filesystem, cache

    @contextmanager
    def opened(self, step: int) -> Iterator[Path]:
        with scratch(self._cache) as folder:
            with self._storage.reaching():
                pyarrow.fs.copy_files(self._at(step), str(folder), self._files)
            yield folder

    @contextmanager
    def writing(self, step: int) -> Iterator[Path]:
        with scratch(self._cache) as folder:
            yield folder
            self._complete(step, folder)

    def _complete(self, step: int, written: Path) -> None:
        """Make it visible, by the mark; older checkpoints lose theirs before their files."""
        _seal(written)
        with self._storage.reaching():
            to = {"destination_filesystem": self._files}
            pyarrow.fs.copy_files(str(written), self._at(step), **to)
        failpoints.reached("checkpoint written")
        self._storage.write(f"{step}{MARK}", b"")
        failpoints.reached("checkpoint complete")
        for old in self._old(step):
            with self._storage.reaching():
                self._files.delete_file(f"{self._at(old)}{MARK}")
                self._files.delete_dir(self._at(old))

    def clear(self) -> None:
        with self._storage.reaching():
            if self._files.get_file_info(self._storage.root).type != pyarrow.fs.FileType.NotFound:
                self._files.delete_dir(self._storage.root)
        failpoints.reached("checkpoints cleared")

    def _at(self, step: int) -> str:
        return f"{self._storage.root}/{step}"

    def _steps(self) -> list[int]:
        selector = pyarrow.fs.FileSelector(self._storage.root, allow_not_found=True)
        with self._storage.reaching():
            found = self._files.get_file_info(selector)
        return sorted(int(f.base_name[: -len(MARK)]) for f in found if f.base_name.endswith(MARK))


def _seal(folder: Path) -> None:
    """Write checksums, by which later changes are found, and data lost in a power failure."""
    with (folder / SEAL).open("w") as file:
        json.dump(_sums(folder), file)
        file.flush()
        os.fsync(file.fileno())


def _is_sealed(folder: Path) -> bool:
    try:
        return json.loads((folder / SEAL).read_text()) == _sums(folder)
    except (FileNotFoundError, ValueError):  # JSON, or text, that was altered
        return False


def _sums(folder: Path) -> dict[str, int]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != SEAL)
    return {str(path.relative_to(folder)): _sum(path) for path in files}


def _sum(path: Path) -> int:
    """CRC-32: it protects against accidents, at the speed of the disk."""
    found = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            found = zlib.crc32(chunk, found)
    return found
