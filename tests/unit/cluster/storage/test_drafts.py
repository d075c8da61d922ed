"""What is on its way: whole or not there, and told from what a killed process left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cluster.storage.blobs import Blobs
from cluster.storage.drafts import abandoned, scratch
from tests.support.lost import killed_while, make_old


def store(place: Path) -> None:
    Blobs(place).put(b"rows of a task")


def save(place: Path) -> None:
    with scratch(place) as folder, (folder / "vector").open("xb") as stream:
        stream.write(b"a vector")
        os.fsync(stream.fileno())


def test_what_a_killed_process_left_is_told_from_what_another_writes(tmp_path: Path) -> None:
    (tmp_path / "drafts").mkdir()
    (draft,) = killed_while(store, tmp_path)
    held = next(path for path in killed_while(save, tmp_path) if path.name == "held")
    with scratch(tmp_path) as folder:
        make_old(folder.parent / "held")
        assert {*abandoned(tmp_path)} == {draft, held.parent}


def test_a_file_is_held_until_it_has_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its flush may take longer than what is young is young."""
    move, looked = Path.replace, list[list[Path]]()

    def late(draft: Path, place: Path) -> Path:
        make_old(draft)
        looked.append([*abandoned(tmp_path)])
        return move(draft, place)

    monkeypatch.setattr(Path, "replace", late)
    store(tmp_path)
    assert looked == [[]]


def test_what_is_young_may_not_be_held_yet(tmp_path: Path) -> None:
    (draft,) = killed_while(store, tmp_path)
    os.utime(draft)
    assert not [*abandoned(tmp_path)]


def test_a_folder_of_which_half_was_made_or_deleted_is_left(tmp_path: Path) -> None:
    """By a process that was killed before it held the folder, or while it deleted it."""
    folder = tmp_path / "drafts" / "half"
    (folder / "files").mkdir(parents=True)
    assert not [*abandoned(tmp_path)]
    make_old(folder)
    assert [*abandoned(tmp_path)] == [folder]


def test_a_scratch_folder_is_empty_and_goes(tmp_path: Path) -> None:
    with scratch(tmp_path / "cache") as folder:
        assert not [*folder.iterdir()]
        (folder / "file").write_bytes(b"x")
    assert not [*(tmp_path / "cache" / "drafts").iterdir()]
