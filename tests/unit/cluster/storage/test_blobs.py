"""Blobs: whole or not there, the same twice, and never a byte that is not the named one."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cluster.coordinator.garbage import unreferenced
from cluster.storage import blobs as storing
from cluster.storage import filesystem
from cluster.storage.blobs import CHUNK, Blobs
from cluster.storage.filesystem import Storage
from tacl.errors import BadConfig, CorruptBlob, StorageUnavailable
from tests.support import s3


@pytest.fixture
def blobs(storage_uri: str, tmp_path: Path) -> Blobs:
    """One contract for a directory and a bucket."""
    return Blobs(storage_uri, cache=tmp_path / "cache")


def file_of(blobs: Blobs, digest: str) -> Path:
    return next(path for path in Path(blobs._root).rglob(digest))


def alter(blobs: Blobs, digest: str, data: bytes) -> None:
    """Behind our back."""
    with blobs._filesystem.open_output_stream(blobs._place(digest)) as stream:
        stream.write(data)


def test_bytes_and_files_are_named_by_their_sha256(blobs: Blobs, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"the same bytes")
    digest = blobs.put(b"the same bytes")
    assert digest == hashlib.sha256(b"the same bytes").hexdigest() == blobs.put(path)
    assert blobs.read(digest) == b"the same bytes"
    assert blobs.local_path(digest).read_bytes() == b"the same bytes"
    blobs.verify(digest)


def test_open_can_seek(blobs: Blobs) -> None:
    with blobs.open(blobs.put(b"0123456789")) as stream:
        stream.seek(7)
        assert stream.read() == b"789"


def test_what_is_not_there_is_said(blobs: Blobs) -> None:
    absent = hashlib.sha256(b"never put").hexdigest()
    assert not blobs.exists(absent)
    for ask in (blobs.read, blobs.open, blobs.verify, blobs.local_path):
        with pytest.raises(CorruptBlob, match=f"{absent}.*no such file"):
            ask(absent)


@pytest.mark.parametrize("altered", [b"shorter", b"the other bytes"])
def test_altered_bytes_are_never_read(blobs: Blobs, altered: bytes) -> None:
    digest = blobs.put(b"the right bytes")
    alter(blobs, digest, altered)
    for ask in (blobs.read, blobs.verify):
        with pytest.raises(CorruptBlob, match="altered"):
            ask(digest)


def test_putting_again_mends_a_truncated_blob(blobs: Blobs) -> None:
    digest = blobs.put(b"the right bytes")
    alter(blobs, digest, b"the right")
    assert blobs.put(b"the right bytes") == digest
    assert blobs.read(digest) == b"the right bytes"


def test_no_garbage_is_collected_of_what_is_just_put_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read a big file takes a while."""
    blobs, measure = Blobs(tmp_path), storing._measure
    digest = blobs.put(b"old")
    os.utime(place := blobs.local_path(digest), (0, 0))

    def meanwhile(data: Any, *write: Any) -> tuple[str, int]:
        found = measure(data, *write)
        if data == place and unreferenced(blobs.listed(digest), (), time.time()):
            Blobs(tmp_path).remove(digest)
        return found

    monkeypatch.setattr(storing, "_measure", meanwhile)
    assert blobs.put(b"old") == digest
    assert blobs.read(digest) == b"old"


def test_putting_again_mends_an_altered_blob(blobs: Blobs) -> None:
    """Of a store on a disk; a bucket's would have to be read for it."""
    digest = blobs.put(b"the right bytes")
    alter(blobs, digest, b"the wrong bytes")
    assert blobs.put(b"the right bytes") == digest
    if blobs._local:
        assert blobs.read(digest) == b"the right bytes"


def test_large_files(blobs: Blobs, tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"0123456789abcdef" * (12 * CHUNK // 16 + 1))  # more than one part of S3's
    digest = blobs.put(path)
    blobs.verify(digest)
    assert blobs.local_path(digest).read_bytes() == path.read_bytes()


def test_what_is_stored_is_listed_and_removed(blobs: Blobs) -> None:
    assert list(blobs.stored()) == []
    one, other = blobs.put(b"one"), blobs.put(b"the other")
    found = {stored.digest: stored.size for stored in blobs.stored()}
    assert found == {one: 3, other: 9}
    assert all(abs(stored.modified - time.time()) < 60 for stored in blobs.stored())
    blobs.local_path(one)
    blobs.remove(one)
    blobs.remove(one)
    assert not blobs.exists(one)
    assert [stored.digest for stored in blobs.stored()] == [other]
    with pytest.raises(CorruptBlob):
        blobs.local_path(one)


def test_many_are_listed_and_removed_at_once(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    stays, *gone = (blobs.put(word) for word in (b"stays", b"one", b"two"))
    threads, real = set[str](), Blobs.remove

    def remove(one: Blobs, digest: str) -> None:
        threads.add(threading.current_thread().name)
        real(one, digest)

    monkeypatch.setattr(Blobs, "remove", remove)
    missing = "0" * 64
    assert {stored.digest for stored in blobs.all_listed([*gone, missing])} == {*gone}
    blobs.remove_all([*gone, missing])
    assert [stored.digest for stored in blobs.stored()] == [stays]
    here = threading.current_thread().name
    assert threads == {here} if blobs._local else here not in threads


def test_what_is_erased_while_it_is_looked_for_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To list a bucket takes a while."""
    blobs = Blobs(tmp_path)
    digest, listed = blobs.put(b"garbage"), blobs._listed

    def meanwhile(what: Any) -> list[storing.Stored]:
        found = [*listed(what)]
        Blobs(tmp_path).remove(digest)
        erasing.close()
        return found

    monkeypatch.setattr(blobs, "_listed", meanwhile)
    with ExitStack() as erasing:
        erasing.enter_context(blobs.hiding({digest}))
        assert not blobs.exists(digest)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = Blobs(tmp_path / "blobs")

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("os.fsync", no_space)
        with pytest.raises(StorageUnavailable, match="No space"):
            blobs.put(b"too much")
    assert not [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
    assert blobs.read(blobs.put(b"too much")) == b"too much"


def test_a_file_that_changes_while_it_is_stored_is_refused(
    blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    real = blobs._cache._put_local

    def edited(digest: str, data: Path | bytes) -> None:
        path.write_bytes(b"after!")
        real(digest, data)

    monkeypatch.setattr(blobs._cache, "_put_local", edited)
    with pytest.raises(CorruptBlob, match="changed while"):
        blobs.put(path)
    assert not list(blobs.stored())


# -- a remote store


@pytest.fixture
def bucket(s3_server: s3.Server) -> str:
    return s3_server.new_bucket()


@pytest.fixture
def asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses before a third attempt are long."""
    monkeypatch.setattr(filesystem, "ATTEMPTS", 2)


def test_a_cached_file_that_was_altered_is_fetched_again(bucket: str, tmp_path: Path) -> None:
    digest = Blobs(bucket, cache=tmp_path / "writer").put(b"the right bytes")
    cached = Blobs(bucket, cache=tmp_path / "cache").local_path(digest)
    cached.write_bytes(b"the wrong bytes")
    again = Blobs(bucket, cache=tmp_path / "cache").local_path(digest)
    assert again.read_bytes() == b"the right bytes"


def test_what_another_deleted_and_somebody_stored_again_is_fetched_again(
    bucket: str, tmp_path: Path
) -> None:
    blobs, other = (Blobs(bucket, cache=tmp_path) for _ in range(2))
    digest = blobs.put(b"a merge")
    assert blobs.local_path(digest).read_bytes() == b"a merge"
    other.remove(digest)  # from the cache that both share, too
    other.put(b"a merge")
    assert blobs.local_path(digest).read_bytes() == b"a merge"


def test_an_altered_remote_blob_never_gets_into_the_cache(bucket: str, tmp_path: Path) -> None:
    blobs = Blobs(bucket, cache=tmp_path / "cache")
    digest = blobs.put(b"the right bytes")
    alter(blobs, digest, b"the wrong bytes")
    with pytest.raises(CorruptBlob, match="altered"):
        blobs.local_path(digest)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_blob_goes_from_bucket_to_bucket_by_one_download(
    s3_server: s3.Server, bucket: str, tmp_path: Path
) -> None:
    digest = Blobs(bucket, cache=tmp_path / "writer").put(b"a vector")
    target = Blobs(s3_server.new_bucket(), cache=tmp_path / "target")
    with s3.lossy(s3_server) as proxy:
        through = s3_server.through(bucket, proxy.port)
        target.take(digest, Blobs(through, cache=tmp_path / "cache"))
        assert proxy.seen.count("GET") == 1
    assert target.read(digest) == b"a vector"


def test_a_remote_store_needs_a_cache(bucket: str) -> None:
    with pytest.raises(ValueError, match="cache"):
        Blobs(bucket)


@pytest.mark.usefixtures("asked_twice")
@pytest.mark.parametrize("data", [b"x", b"x" * (6 * CHUNK)])
@pytest.mark.parametrize("times", [1, 50])
def test_a_put_whose_answer_is_lost_has_landed(
    s3_server: s3.Server, bucket: str, tmp_path: Path, times: int, data: bytes
) -> None:
    with s3.lossy(s3_server) as proxy:
        blobs = Blobs(s3_server.through(bucket, proxy.port), cache=tmp_path / "cache")
        proxy.lose("PUT", times)
        digest = blobs.put(data)
        assert proxy.seen.count("PUT") >= 2  # it was asked again before it was looked for
    assert Blobs(bucket, cache=tmp_path / "cache").read(digest) == data


@pytest.mark.usefixtures("asked_twice")
def test_a_store_that_does_not_answer_is_said(
    s3_server: s3.Server, bucket: str, tmp_path: Path
) -> None:
    with s3.lossy(s3_server) as proxy:
        blobs = Blobs(s3_server.through(bucket, proxy.port), cache=tmp_path / "cache")
        proxy.refuse("PUT", 50)
        with pytest.raises(StorageUnavailable, match="does not do what was asked"):
            blobs.put(b"x")
        proxy.refuse("PUT", 1)
        digest = blobs.put(b"x")
        proxy.refuse("GET", 1)
        assert blobs.read(digest) == b"x"
        proxy.refuse("GET", 50)
        for ask in (blobs.read, blobs.local_path, blobs.verify):
            with pytest.raises(StorageUnavailable):
                ask(digest)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_cache_on_a_disk_that_takes_no_writes_is_read(
    s3_server: s3.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, cache = s3_server.new_bucket(), tmp_path / "cache"
    place = Blobs(bucket, cache).local_path(digest := Blobs(bucket, cache).put(b"a vector"))

    def read_only(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "utime", read_only)
    monkeypatch.setattr(storing, "atomic_write", read_only)
    assert Blobs(bucket, cache).local_path(digest) == place


def test_to_look_at_many_files_their_folders_are_listed(
    s3_server: s3.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a page of users has may be ten thousand files; a recipe, of two hundred. The bucket may
    hold a hundred thousand others."""
    monkeypatch.setattr(storing, "FEW", 3)
    with s3.lossy(s3_server) as proxy:
        bucket = s3_server.through(s3_server.new_bucket(), proxy.port)
        blobs = Blobs(bucket, cache=tmp_path / "cache")
        digests = [blobs.put(bytes(size)) for size in range(1, 6)]
        others = [blobs.put(f"another {number}".encode()) for number in range(9)]
        folders = len({digest[:2] for digest in digests})
        assert len({digest[:2] for digest in (*digests, *others)}) > folders
        for asked, requests in ((digests[:2], ["HEAD"] * 2), (digests, ["HEAD"] * 3)):
            proxy.seen.clear()
            assert blobs.size(asked) == sum(range(1, len(asked) + 1))
            assert proxy.seen == requests
        for asked, requests in ((digests[:2], ["HEAD"] * 2), (digests, ["GET"] * folders)):
            proxy.seen.clear()
            assert blobs.existing({*asked}) == {*asked}
            assert proxy.seen == requests
        assert blobs.existing({*digests, "0" * 64}) == {*digests}
        with blobs.hiding(digests[:1]):
            assert blobs.existing({*digests}) == {*digests[1:]}
        blobs = Blobs(bucket, cache=tmp_path / "cache")
        for requests in (["GET"] * folders, []):
            proxy.seen.clear()
            assert blobs.size(digests) == 15
            assert proxy.seen == requests


def test_files_of_a_bucket_are_read_side_by_side(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fit has two of every task, and each is a while on its way."""
    blobs, both = Blobs(bucket, cache=tmp_path), threading.Barrier(2, timeout=10)
    digests, stream = [blobs.put(b"one head"), blobs.put(b"another")], blobs._stream

    def met(digest: str) -> Iterator[bytes]:
        both.wait()
        return stream(digest)

    monkeypatch.setattr(blobs, "_stream", met)
    blobs.verify_all(digests)
    alter(blobs, digests[1], b"altered")
    with pytest.raises(CorruptBlob, match=digests[1]):
        blobs.verify_all(digests)


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("s3://key:secret@bucket/x", "s3://bucket/x was given with credentials"),
        ("s3://bucket/x?secret_key=secret", "not secret_key"),
        ("ftp://host/x", "no storage"),
        ("s3:///x", "no storage"),
        ("s3://bucket/x?scheme=ftp", "no storage: .*scheme 'ftp'; use a directory"),
        ("file://data/x", "no storage: .*; use a directory, file:///PATH"),
        ("file:///my data", "no storage: .*character ' '"),
        ("file:///%FF", "no storage: .*decode byte"),
    ],
)
def test_a_place_that_cannot_be_used(uri: str, says: str) -> None:
    with pytest.raises(BadConfig, match=says) as refused:
        Storage(uri)
    assert "secret@" not in str(refused.value)


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StorageUnavailable, match=f"{place} cannot be made"):
            Storage(place)


def test_a_bucket_that_is_not_there(s3_server: s3.Server, tmp_path: Path) -> None:
    blobs = Blobs(s3_server.uri("nobody-made-it", s3_server.port), cache=tmp_path)
    with pytest.raises(StorageUnavailable, match="whether the bucket exists, in which region"):
        blobs.put(b"x")


def test_small_files_of_a_storage(storage_uri: str) -> None:
    storage = Storage(storage_uri)
    assert storage.read("a/name") is None
    storage.write("a/name", b"one")
    storage.write("a/name", b"other")
    assert storage.read("a/name") == storage.below("a").read("name") == b"other"
