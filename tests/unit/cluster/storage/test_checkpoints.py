"""Checkpoints: complete or absent, on a shared directory and in a bucket."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pyarrow.fs
import pytest

from cluster.storage.checkpoints import Checkpoints, checkpoints, runs
from cluster.storage.filesystem import Storage
from tacl.errors import StorageUnavailable


@pytest.fixture
def storage(storage_uri: str) -> Storage:
    return Storage(storage_uri).below("checkpoints")


def save(step: int):
    def write(folder: Path) -> None:
        (folder / "step.json").write_text(json.dumps(step))
        (folder / "below").mkdir()
        (folder / "below" / "tensors").write_bytes(b"x" * step)

    return write


def read(found: Checkpoints) -> int:
    step = found.newest()
    assert step is not None
    with found.opened(step) as folder:
        assert len((folder / "below" / "tensors").read_bytes()) == step
        return json.loads((folder / "step.json").read_text())


def test_the_newest_complete_one_is_taken_up(storage: Storage) -> None:
    own = checkpoints(storage, "run")
    assert own.newest() is None
    for step in (3, 9, 11):  # 11 comes after 9 as a number
        own.write(step, save(step))
    save(15)(own.beside(15))  # and then the machine went away
    assert read(checkpoints(storage, "run")) == 11
    own.write(11, save(11))  # again, by another attempt
    assert read(own) == 11
    with pytest.raises((FileNotFoundError, OSError)), own.opened(3) as folder:
        (folder / "step.json").read_text()  # only the newest two are kept


@pytest.mark.parametrize("seal", [b"", b"{", b"null", b"\xff{}"])
def test_one_whose_seal_is_altered_is_none(storage: Storage, seal: bytes) -> None:
    own = checkpoints(storage, "run")
    for step in (3, 9):
        own.write(step, save(step))
    storage.below("run/9").write("sums.json", seal)
    assert read(own) == 3


def test_what_was_just_written_stays_beside_newer_ones_that_are_altered(storage: Storage) -> None:
    own = checkpoints(storage, "run")
    for step in (100, 200):
        own.write(step, save(step))
        storage.below(f"run/{step}").write("step.json", b"altered")
    assert own.newest() is None
    own.write(50, save(50))
    assert read(own) == 50


def test_one_that_could_not_be_saved_is_left_nowhere(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def full(folder: Path) -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        checkpoints(storage, "run").write(3, full)
    assert not list(tmp_path.glob("tacl-checkpoint*"))
    if storage.is_local:
        assert not list(Path(storage.root, "run").iterdir())
    assert checkpoints(storage, "run").newest() is None


def test_what_cannot_be_stored_is_left_nowhere(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if storage.is_local:
        pytest.skip("a shared directory is written in its place")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()

    def away(*_: object, **__: object) -> None:
        raise OSError("the bucket is away")

    monkeypatch.setattr(pyarrow.fs, "copy_files", away)
    with pytest.raises((OSError, StorageUnavailable)):
        checkpoints(storage, "run").write(3, save(3))
    assert list((tmp_path / "tmp").iterdir()) == []


def test_what_cannot_be_deleted_is_not_said_to_be(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training that begins anew would go on from it."""
    checkpoints(storage, "run").write(3, save(3))

    def refused(*_: object, **__: object) -> None:
        raise PermissionError("not yours")

    if storage.is_local:
        monkeypatch.setattr(os, "unlink", refused)
        with pytest.raises(PermissionError):
            checkpoints(storage, "run").clear()
        assert checkpoints(storage, "run").newest() == 3


def test_a_run_that_ended_keeps_none(storage: Storage) -> None:
    for run in ("one", "other"):
        checkpoints(storage, run).write(1, save(1))
    assert sorted(runs(storage)) == ["one", "other"]
    checkpoints(storage, "one").clear()
    checkpoints(storage, "one").clear()
    assert runs(storage) == ["other"]
    assert checkpoints(storage, "one").newest() is None
    assert read(checkpoints(storage, "other")) == 1
