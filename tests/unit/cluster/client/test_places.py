"""Where exported files go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from cluster.client.places import Place
from tacl.errors import BadConfig


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_who_may_read_the_folder_may_read_its_files(tmp_path: Path, umask: int) -> None:
    def write(folder: Path) -> None:
        (folder / "README.md").write_text("x")
        save_file({"a": torch.ones(1)}, folder / "a.safetensors")
        (folder / "a.safetensors").chmod(0o600)

    before = os.umask(umask)
    try:
        _, files = Place.of(tmp_path / "out").written(write, "")
    finally:
        os.umask(before)
    assert files == ("README.md", "a.safetensors")
    modes = {(tmp_path / "out" / file).stat().st_mode & 0o777 for file in files}
    assert modes == {0o666 & ~umask}


def test_a_folder_that_may_not_be_written_is_refused_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Place.of(tmp_path / "out").require_ready()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(BadConfig, match="may not write"):
        Place.of(tmp_path / "out").require_ready()


def test_a_place_that_was_taken_meanwhile_is_left_as_it_is(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "README.md").write_text("mine")
        (tmp_path / "out").mkdir()  # by another export
        (tmp_path / "out" / "README.md").write_text("theirs")

    with pytest.raises(BadConfig, match="out exists; name a new folder"):
        Place.of(tmp_path / "out").written(write, "")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "README.md").read_text() == "theirs"
