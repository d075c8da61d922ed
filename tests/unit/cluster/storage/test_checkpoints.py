"""Checkpoints: complete or absent, on a shared directory and in a bucket."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pyarrow.fs
import pytest

from cluster.domain.base import BlobRef
from cluster.storage.checkpoints import Checkpoints, checkpoints, runs
from cluster.storage.home import SETTINGS, Home, Settings, write
from tacl.errors import StorageUnavailable
from tests.support.fakes import BASE
from tests.support.kept import newest


@pytest.fixture
def home(storage_uri: str, tmp_path: Path) -> Home:
    generic = BlobRef(digest="", rows=1)
    made = Settings(base=BASE, generic=generic, blobs=storage_uri, storage=storage_uri)
    write(tmp_path / SETTINGS, made)
    return Home(tmp_path)


def save(step: int):
    def write(folder: Path) -> None:
        (folder / "step.json").write_text(json.dumps(step))
        (folder / "below").mkdir()
        (folder / "below" / "tensors").write_bytes(b"x" * step)

    return write


def read(found: Checkpoints) -> int:
    with found.newest() as kept:
        assert kept is not None
        assert len((kept.folder / "below" / "tensors").read_bytes()) == kept.step
        return json.loads((kept.folder / "step.json").read_text())


def test_the_newest_complete_one_is_taken_up(home: Home) -> None:
    own = checkpoints(home, "run")
    assert newest(own) is None
    for step in (3, 9, 11):  # 11 comes after 9 as a number
        own.write(step, save(step))
    went_away = own.writing(15)
    save(15)(went_away.__enter__())
    assert read(checkpoints(home, "run")) == 11
    own.write(11, save(11))  # again, by another attempt
    assert read(own) == 11
    with pytest.raises((FileNotFoundError, OSError)), own.opened(3) as folder:
        (folder / "step.json").read_text()  # only the newest two are kept


@pytest.mark.parametrize("seal", [b"", b"{", b"null", b"\xff{}"])
def test_one_whose_seal_is_altered_is_none(home: Home, seal: bytes) -> None:
    own = checkpoints(home, "run")
    for step in (3, 9):
        own.write(step, save(step))
    home.checkpoints.below("run/9").write("sums.json", seal)
    assert read(own) == 3


def test_what_was_just_written_stays_beside_newer_ones_that_are_altered(home: Home) -> None:
    own = checkpoints(home, "run")
    for step in (100, 200):
        own.write(step, save(step))
        home.checkpoints.below(f"run/{step}").write("step.json", b"altered")
    assert newest(own) is None
    own.write(50, save(50))
    assert read(own) == 50


def test_one_that_could_not_be_saved_is_left_nowhere(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")  # which keeps what killed processes leave

    def full(folder: Path) -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        checkpoints(home, "run").write(3, full)
    assert not list(home.path.glob("cache/drafts/*"))
    if home.checkpoints.is_local:
        assert not list(Path(home.checkpoints.root, "run").iterdir())
    assert newest(checkpoints(home, "run")) is None


def test_what_cannot_be_stored_is_left_nowhere(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    if home.checkpoints.is_local:
        pytest.skip("a shared directory is written in its place")

    def away(*_: object, **__: object) -> None:
        raise OSError("the bucket is away")

    monkeypatch.setattr(pyarrow.fs, "copy_files", away)
    with pytest.raises((OSError, StorageUnavailable)):
        checkpoints(home, "run").write(3, save(3))
    assert not list(home.path.glob("cache/drafts/*"))


def test_what_cannot_be_deleted_is_not_said_to_be(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training that begins anew would go on from it."""
    checkpoints(home, "run").write(3, save(3))

    def refused(*_: object, **__: object) -> None:
        raise PermissionError("not yours")

    if home.checkpoints.is_local:
        monkeypatch.setattr(os, "unlink", refused)
        with pytest.raises(PermissionError):
            checkpoints(home, "run").clear()
        assert newest(checkpoints(home, "run")) == 3


def test_a_run_that_ended_keeps_none(home: Home) -> None:
    for run in ("one", "other"):
        checkpoints(home, run).write(1, save(1))
    assert sorted(runs(home)) == ["one", "other"]
    checkpoints(home, "one").clear()
    checkpoints(home, "one").clear()
    assert runs(home) == ["other"]
    assert newest(checkpoints(home, "one")) is None
    assert read(checkpoints(home, "other")) == 1
