"""Immutable files named by the sha256 of their bytes, in a local directory or an S3 bucket.

A blob exists whole or not at all: locally it is written among the drafts, flushed and renamed; an
object store shows an object only after its upload has ended. Putting the same bytes twice is
harmless, so every put can be repeated, also if its answer was lost. A blob that is read whole is
checked against its name.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO, TypeVar

import pyarrow as pa
import pyarrow.fs

from cluster import failpoints
from cluster.storage.drafts import DRAFTS, abandoned, atomic_write
from cluster.storage.filesystem import Storage
from tacl.errors import CorruptBlob, StorageUnavailable

CHUNK = 1 << 20  # bytes read at a time
Held = bytes | memoryview  # in memory
FEW = 100  # files that are queried one by one; for more than these, their folders are listed
WIDE = 16  # concurrent requests to a bucket, which takes a while to answer each
A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True)
class Stored:
    """One file of a store, as its directory lists it."""

    digest: str
    size: int  # bytes
    modified: float  # seconds since 1970


class Blobs:
    """A content-addressed store.

    Args:
        uri: a directory, a `file://` URI, or `s3://BUCKET/PREFIX` (`cluster.storage.filesystem`).
        cache: a directory of this machine for files of a remote store; a local store needs none.
            Its files may be deleted at any time.

    Every method of a remote store raises StorageUnavailable if the store does not answer.
    """

    def __init__(self, uri: str | Path, cache: Path | None = None) -> None:
        self._storage = Storage(uri)
        self._filesystem, self._root = self._storage.filesystem, self._storage.root
        self._local = self._storage.is_local
        self._checked: set[str] = set()  # files of the cache that this process has checked
        self._denied: Collection[str] = ()  # being erased by another object
        self._sizes: dict[str, int] = {}  # known sizes: no blob ever changes
        if self._local:
            self._cache = self
        elif cache is not None:
            self._cache = Blobs(cache)
        else:
            raise ValueError(f"{self._root} is remote: give Blobs a cache to get local paths")

    def put(self, data: Path | Held) -> str:
        """Store a file's bytes, or the given bytes; returns their sha256 in hex."""
        digest, size = _measure(data)
        if digest in self._denied:
            raise StorageUnavailable(f"blob {digest} is being erased; repeat what you asked")
        if not self._local:  # checking what a bucket has would be a download
            if not self._has(digest, size):
                self._put_remote(digest, size, data)
        elif not _is_sound(Path(self._place(digest)), digest, wanted=True):
            self._put_local(digest, data)
        return digest

    def take(self, digest: str, source: Blobs) -> None:
        """Copy a blob of another store, checked on the way. CorruptBlob if it is missing or altered
        there, StorageUnavailable if a disk fails to read or write it."""
        if not self._local:
            if source._local:  # else it is checked on its way into the cache
                source.verify(digest)
            path = source.local_path(digest)
            return self._send(digest, path.stat().st_size, path)
        try:
            self._put_local(digest, source._given(digest))
        except CorruptBlob:
            source.verify(digest)  # raises a clearer error, unless the copying was at fault
            raise

    def open(self, digest: str) -> BinaryIO:
        """A seekable binary file, unchecked. CorruptBlob if it is missing."""
        if digest in self._denied:
            raise self._missing(digest)
        with self._storage.reaching():
            try:
                return self._filesystem.open_input_file(self._place(digest))
            except FileNotFoundError as error:
                raise self._missing(digest) from error

    def read(self, digest: str) -> bytes:
        """All bytes, checked. CorruptBlob if the blob is missing or altered."""
        with self._storage.reaching(), self.open(digest) as stream:
            data = stream.read()
        self._require(digest, hashlib.sha256(data).hexdigest(), len(data))
        return data

    def local_path(self, digest: str) -> Path:
        """A path on this machine to read the blob from. CorruptBlob if it is missing.

        A blob of a remote store is downloaded into the cache, whose file every process reads whole
        and checks once. A local store's own file is not read: `verify` does that.
        """
        path = Path(self._cache._place(digest))
        if self._local:
            if not path.is_file():
                raise self._missing(digest)
        elif digest not in self._checked or not path.is_file():  # deleted and stored again
            if not _is_sound(path, digest):
                path.parent.mkdir(parents=True, exist_ok=True)  # the cache may have been deleted
                self._cache.take(digest, self)
            self._checked.add(digest)
        return path

    def exists(self, digest: str) -> bool:
        """Whether the blob exists; its content is not checked."""
        return bool(self.existing({digest}))

    def existing(self, digests: Set[str]) -> Set[str]:
        """The subset of blobs that exist; their content is not checked."""
        asked = digests - {*self._denied}  # taken first: `hiding` may end meanwhile
        return asked & {one.digest for one in self._found(asked)}

    @contextmanager
    def hiding(self, digests: Collection[str]) -> Iterator[None]:
        """Within the block, in which another object erases these blobs, this object reports them as
        missing, and putting one raises StorageUnavailable."""
        self._denied = digests
        try:
            yield
        finally:
            self._denied = ()

    def size(self, digests: Collection[str]) -> int:
        """The total bytes of the given blobs that exist, or did when last queried: in a bucket each
        query takes a while."""
        new = [digest for digest in digests if digest not in self._sizes]
        self._sizes |= {one.digest: one.size for one in self._found(new)}
        return sum(self._sizes.get(digest, 0) for digest in digests)

    def verify(self, digest: str) -> None:
        """Read the whole blob. CorruptBlob if it is missing, truncated or altered."""
        self._require(digest, *_measure(self._stream(digest)))

    def verify_all(self, digests: Collection[str]) -> None:
        """CorruptBlob if one of these blobs is missing, truncated or altered."""
        self._each(self.verify, digests)

    def stored(self) -> Iterator[Stored]:
        """Every blob of the store, in no order."""
        every = pyarrow.fs.FileSelector(self._root, recursive=True, allow_not_found=True)
        yield from self._listed(every)

    def listed(self, digest: str) -> Iterator[Stored]:
        """This blob, if it exists."""
        yield from self._listed([self._place(digest)])

    def all_listed(self, digests: Collection[str]) -> list[Stored]:
        """Those of these blobs that exist."""
        asked = frozenset(digests)
        return [one for one in self._found(asked) if one.digest in asked]

    def _found(self, digests: Collection[str]) -> Iterator[Stored]:
        """The given files that exist; for many files in a bucket perhaps also others."""
        places = [*map(self._place, digests)]
        if self._local:
            return self._listed(places)
        asked: list[pyarrow.fs.FileSelector | list[str]] = [[place] for place in places]
        if len(places) > FEW:
            folders = {place.rpartition("/")[0] for place in places}
            asked = [pyarrow.fs.FileSelector(one, allow_not_found=True) for one in folders]
        return chain.from_iterable(self._each(lambda what: [*self._listed(what)], asked))

    def _each(self, do: Callable[[A], B], these: Collection[A]) -> list[B]:
        """Call `do` for each of these; in a bucket for many at once."""
        if self._local:
            return [*map(do, these)]
        with ThreadPoolExecutor(WIDE) as threads:
            return [*threads.map(do, these)]

    def _listed(self, what: pyarrow.fs.FileSelector | list[str]) -> Iterator[Stored]:
        with self._storage.reaching():
            found = self._filesystem.get_file_info(what)
        for file in found:
            if file.is_file and _is_digest(file.base_name):
                yield Stored(file.base_name, file.size, file.mtime_ns / 1e9)

    def partial_files(self) -> Iterator[Path]:
        """Files being written here, or left by a process that died while writing."""
        return Path(self._root).glob("*/.*") if self._local else iter(())

    def abandoned(self) -> Iterator[Path]:
        """Drafts left by processes that died while they wrote here, or into the cache."""
        return abandoned(Path(self._cache._root))

    def remove(self, digest: str) -> None:
        """Delete the blob, here and in the cache; harmless if it does not exist."""
        self._checked.discard(digest)
        for blobs in {self, self._cache}:
            with self._storage.reaching(), suppress(FileNotFoundError):
                blobs._filesystem.delete_file(blobs._place(digest))
        failpoints.reached("blob removed")

    def remove_all(self, digests: Collection[str]) -> None:
        """Delete these blobs, in a bucket many at once."""
        self._each(self.remove, digests)

    def _has(self, digest: str, size: int) -> bool:
        return any(one.size == size for one in self.listed(digest))

    def _put_local(self, digest: str, data: Path | Held | Iterator[bytes]) -> None:
        place = Path(self._place(digest))
        try:
            drafts = Path(self._root) / DRAFTS  # few, so quick to list
            for folder in (place.parent, drafts):
                folder.mkdir(exist_ok=True, mode=0o700)
            with atomic_write(place, drafts) as stream:
                os.fchmod(stream.fileno(), 0o600)  # it may hold private samples
                if _measure(data, stream.write)[0] != digest:
                    raise CorruptBlob(f"{data} changed while it was being stored; put it again")
                failpoints.reached("blob written")
        except OSError as error:
            raise StorageUnavailable(
                f"a file of {place.parent.parent} cannot be written: {error.strerror}. Free some "
                "space, or let this process write there; then repeat what you asked."
            ) from error
        failpoints.reached("blob stored")

    def _put_remote(self, digest: str, size: int, data: Path | Held) -> None:
        """Upload bytes that cannot change any more: closing the stream stores what it had, and
        nothing may ever be stored under another's digest."""
        if isinstance(data, Path):
            self._cache._put_local(digest, data)
            data = self._cache.local_path(digest)
            self._checked.add(digest)
        self._send(digest, size, data)

    def _send(self, digest: str, size: int, data: Path | Held) -> None:
        try:
            with self._storage.reaching():
                is_file = isinstance(data, Path)
                buffer = pa.memory_map(str(data)).read_buffer() if is_file else data
                with self._filesystem.open_output_stream(self._place(digest)) as stream:
                    stream.write(buffer)
        except StorageUnavailable:
            if not self._has(digest, size):
                raise
            self.verify(digest)  # perhaps only the answer was lost

    def _stream(self, digest: str) -> Iterator[bytes]:
        with self._storage.reaching(), self.open(digest) as stream:
            while chunk := stream.read(CHUNK):
                yield chunk

    def _given(self, digest: str) -> Iterator[bytes]:
        """Its bytes for another store, whose disk is not at fault if they cannot be read here."""
        try:
            yield from self._stream(digest)
        except OSError as error:
            raise StorageUnavailable(
                f"blob {digest} under {self._root} cannot be read: {error}. Let this process read "
                "it, or restore it from a backup; then repeat what you asked."
            ) from error

    def _place(self, digest: str) -> str:
        return f"{self._root}/{digest[:2]}/{digest}"  # keeps each directory small

    def _missing(self, digest: str) -> CorruptBlob:
        return CorruptBlob(
            f"blob {digest} was asked for; there is no such file under {self._root}. "
            "Restore it from a backup, or submit again what it belongs to."
        )

    def _require(self, digest: str, found: str, size: int) -> None:
        if found != digest:
            raise CorruptBlob(
                f"blob {digest} under {self._root} was altered: its {size} bytes have digest "
                f"{found}. Restore it from a backup, or submit again what it belongs to."
            )


def _measure(
    data: Path | Held | Iterator[bytes], write: Callable[[Held], object] | None = None
) -> tuple[str, int]:
    """Digest and size; every part is passed to `write` on the way."""
    digest, size = hashlib.sha256(), 0
    for chunk in _chunks(data):
        digest.update(chunk)
        size += len(chunk)
        if write is not None:
            write(chunk)
    return digest.hexdigest(), size


def _chunks(data: Path | Held | Iterator[bytes]) -> Iterator[Held]:
    if isinstance(data, Held):
        yield data
    elif isinstance(data, Path):
        with data.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                yield chunk
    else:
        yield from data


def _is_sound(path: Path, digest: str, wanted: bool = False) -> bool:
    """Whether a file has this digest. `wanted`: first set its time to now, so that it is kept."""
    try:
        if wanted:
            os.utime(path)
        return _measure(path)[0] == digest
    except OSError:  # it does not exist or cannot be read
        return False


def _is_digest(name: str) -> bool:
    return len(name) == 64 and set(name) <= set("0123456789abcdef")
