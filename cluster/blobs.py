"""Immutable files named by the sha256 of their bytes, in a local directory or an S3 bucket.

A blob is there whole or not at all: locally it is written beside its place, flushed and renamed;
an object store shows an object only after its upload ended. Putting the same bytes twice is
harmless, so every put can be repeated. What is read whole is checked against its name.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow.fs

from tacl.errors import CorruptBlob

CHUNK = 1 << 20  # bytes read at a time


class Blobs:
    """A content-addressed store.

    Args:
        uri: a directory, a `file://` URI, or any other URI that pyarrow.fs reads (`s3://...`).
        cache: where blobs of a remote store are kept for `local_path`; a local store needs none.
    """

    def __init__(self, uri: str | Path, cache: Path | None = None) -> None:
        text = str(uri)
        source = text if "://" in text else Path(text).expanduser().resolve().as_uri()
        self._filesystem, self._root = pyarrow.fs.FileSystem.from_uri(source)
        self._local = isinstance(self._filesystem, pyarrow.fs.LocalFileSystem)
        self._cache = None if cache is None or self._local else Blobs(cache)
        if self._local:
            Path(self._root).mkdir(parents=True, exist_ok=True)

    def put(self, data: Path | bytes) -> str:
        """Store a file's bytes, or the bytes given; returns their sha256 in hex."""
        digest, size = _measure(data)
        found = self._filesystem.get_file_info(self._place(digest))
        if found.is_file and found.size == size:
            return digest
        if self._local:
            self._put_local(digest, data)
        else:
            self._put_remote(digest, data)
        return digest

    def open(self, digest: str) -> BinaryIO:
        """A seekable binary file. CorruptBlob when there is none; its content is not checked."""
        try:
            return self._filesystem.open_input_file(self._place(digest))
        except FileNotFoundError as error:
            raise self._missing(digest) from error

    def read(self, digest: str) -> bytes:
        """All bytes, checked. CorruptBlob when missing or altered."""
        with self.open(digest) as stream:
            data = stream.read()
        self._require(digest, hashlib.sha256(data).hexdigest(), len(data))
        return data

    def local_path(self, digest: str) -> Path:
        """A path on this machine to read the blob from; CorruptBlob when it is missing.

        A blob of a remote store is downloaded into the cache and checked on the way; one that
        lies here already is not read again: `verify` does that.
        """
        if self._local:
            path = Path(self._place(digest))
            if not path.is_file():
                raise self._missing(digest)
            return path
        if self._cache is None:
            raise ValueError(f"{self._root} is remote: give Blobs a cache to get local paths")
        if not self._cache.exists(digest):
            self._cache.put(self.read(digest))
        return self._cache.local_path(digest)

    def exists(self, digest: str) -> bool:
        """Whether a file of that name is there; its content is not checked."""
        return self._filesystem.get_file_info(self._place(digest)).is_file

    def verify(self, digest: str) -> None:
        """Read it all: CorruptBlob when missing, truncated or altered."""
        found, size = hashlib.sha256(), 0
        with self.open(digest) as stream:
            while chunk := stream.read(CHUNK):
                found.update(chunk)
                size += len(chunk)
        self._require(digest, found.hexdigest(), size)

    def _put_local(self, digest: str, data: Path | bytes) -> None:
        place = Path(self._place(digest))
        place.parent.mkdir(exist_ok=True)
        beside = place.with_name(f".{digest}.{uuid.uuid4().hex}")
        try:
            with beside.open("xb") as stream:
                self._copy(digest, data, stream)
                stream.flush()
                os.fsync(stream.fileno())
            beside.rename(place)
        finally:
            beside.unlink(missing_ok=True)
        _flush_directory(place.parent)

    def _put_remote(self, digest: str, data: Path | bytes) -> None:
        place = self._place(digest)
        self._filesystem.create_dir(place.rpartition("/")[0])
        try:
            with self._filesystem.open_output_stream(place) as stream:
                self._copy(digest, data, stream)
        except BaseException:
            self._filesystem.delete_file(place)  # closing the stream stored what it had
            raise

    def _copy(self, digest: str, data: Path | bytes, stream: BinaryIO) -> None:
        copied = hashlib.sha256()
        for chunk in _chunks(data):
            copied.update(chunk)
            stream.write(chunk)
        if copied.hexdigest() != digest:
            raise CorruptBlob(f"{data} changed while it was being stored; put it again")

    def _place(self, digest: str) -> str:
        return f"{self._root}/{digest[:2]}/{digest}"  # few enough names in any one directory

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


def _measure(data: Path | bytes) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    for chunk in _chunks(data):
        digest.update(chunk)
        size += len(chunk)
    return digest.hexdigest(), size


def _chunks(data: Path | bytes) -> Iterator[bytes]:
    if isinstance(data, bytes):
        yield data
        return
    with data.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            yield chunk


def _flush_directory(folder: Path) -> None:
    """The rename itself survives a power cut only when the directory was flushed too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
