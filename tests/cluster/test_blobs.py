"""Blobs: whole or not there, the same twice, and never a byte that is not the named one."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from cluster.blobs import Blobs
from tacl.errors import CorruptBlob


@pytest.fixture(params=["local", "remote"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    """One contract for a directory and for a store behind another file system."""
    if request.param == "local":
        return Blobs(tmp_path / "blobs")
    return Blobs("mock:///bucket", cache=tmp_path / "cache")


def file_of(blobs: Blobs, digest: str) -> Path:
    return next(path for path in Path(blobs._root).rglob(digest))


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


def test_a_remote_write_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = Blobs("mock:///bucket")
    digest = hashlib.sha256(b"too much").hexdigest()
    with monkeypatch.context() as broken:
        broken.setattr("cluster.blobs._measure", lambda data: ("00" + digest[2:], 8))
        with pytest.raises(CorruptBlob, match="changed while"):
            blobs.put(b"too much")
    assert not blobs.exists("00" + digest[2:])


@pytest.mark.parametrize("altered", [b"shorter", b"the other bytes"])
def test_altered_bytes_are_never_read(tmp_path: Path, altered: bytes) -> None:
    blobs = Blobs(tmp_path)
    digest = blobs.put(b"the right bytes")
    file_of(blobs, digest).write_bytes(altered)
    for ask in (blobs.read, blobs.verify):
        with pytest.raises(CorruptBlob, match="altered"):
            ask(digest)


def test_putting_again_mends_a_truncated_blob(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    digest = blobs.put(b"the right bytes")
    file_of(blobs, digest).write_bytes(b"the right")
    assert blobs.put(b"the right bytes") == digest
    assert blobs.read(digest) == b"the right bytes"


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = Blobs(tmp_path / "blobs")

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("os.fsync", no_space)
        with pytest.raises(OSError, match="No space"):
            blobs.put(b"too much")
    assert not [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
    assert blobs.read(blobs.put(b"too much")) == b"too much"


def test_a_file_that_changes_while_it_is_stored_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs, path = Blobs(tmp_path / "blobs"), tmp_path / "file"
    path.write_bytes(b"before")
    real = blobs._put_local

    def edited(digest: str, data: Path | bytes) -> None:
        path.write_bytes(b"after!")
        real(digest, data)

    monkeypatch.setattr(blobs, "_put_local", edited)
    with pytest.raises(CorruptBlob, match="changed while"):
        blobs.put(path)
    assert not blobs.exists(hashlib.sha256(b"before").hexdigest())


def test_a_remote_store_without_a_cache_has_no_local_paths() -> None:
    blobs = Blobs("mock:///bucket")
    with pytest.raises(ValueError, match="cache"):
        blobs.local_path(blobs.put(b"x"))
