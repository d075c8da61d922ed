"""No file of a folder is left out in silence because of the names of others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from datasets import Dataset

from cluster.data.ingest import ingest, ingest_samples, inputs_of
from cluster.storage.blobs import Blobs
from tacl.errors import BadConfig
from tests.support.data_files import csv, image_folder, png, stored


def pictures(folder: Path, names: Sequence[str]) -> Path:
    for shade, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(png(shade))
    return folder


def of(classes: Sequence[str], name: str, n: int = 6) -> list[str]:
    return [f"{one}/{name}{i}.png" for one in classes for i in range(n)]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (of("ab", "img_", 30) + of("ab", "test_", 10), r"\(60\).*'a/test_0\.png' is .*split test"),
        (of("ab", "img_") + of("b", "dev-", 1), r"\(12\).*'b/dev-0\.png' is .*split validation"),
        (
            of("ab", "img_") + of("ab", "near train "),
            r"\(12\).*'a/near train 0\.png' .*split train",
        ),
        (of(("car", "plane", "train"), ""), r"car/0\.png, .*\(12\).*'train/0\.png' .*split train"),
        (of(("car", "plane", "test"), ""), r"car/0\.png, .*\(12\).*'test/0\.png' .*split test"),
        (["a/0.jpg", *of("b", "test_")], r": a/0\.jpg would be left out.*'b/test_0\.png'"),
    ],
    ids=["test", "one", "train", "class train", "class test", "another suffix"],
)
def test_pictures_beside_those_whose_names_say_a_split_are_refused(
    tmp_path: Path, blobs: Blobs, names: list[str], said: str
) -> None:
    with pytest.raises(BadConfig, match=said):
        ingest(pictures(tmp_path / "d", names), blobs, "image")
    assert stored(tmp_path) == []


def test_tables_without_a_split_are_not_replaced_by_those_to_test_on(
    tmp_path: Path, blobs: Blobs
) -> None:
    for name in ("part1", "part2", "reviews-test"):
        csv(tmp_path / "d" / f"{name}.csv")
    said = (
        r"d: part1\.csv, part2\.csv would be left out, since 'reviews-test\.csv' is read as split "
        "test by its name; rename such files or folders, or put all files into folders train and"
    )
    with pytest.raises(BadConfig, match=said):
        ingest(tmp_path / "d", blobs, "text")
    with pytest.raises(BadConfig, match=said):
        ingest_samples(tmp_path / "d", blobs, "text")
    with pytest.raises(BadConfig, match=said):
        inputs_of(tmp_path / "d", "text")
    assert stored(tmp_path) == []


def test_tables_beside_those_to_train_on_are_noted(tmp_path: Path, blobs: Blobs) -> None:
    for name in ("train", "test", "old", "older", "oldest", "part 1"):
        csv(tmp_path / "d" / f"{name}.csv", 60 if name == "train" else 20)
    (tmp_path / "d/about.json").write_text("{}")
    found = ingest(tmp_path / "d", blobs, "text")
    assert found.notes[:1] == ("left out, of no split: old.csv, older.csv, oldest.csv, ... (4)",)
    assert found.train.rows + found.validation.rows + found.probe == 60


def test_pictures_outside_of_the_folders_of_splits_are_noted(tmp_path: Path, blobs: Blobs) -> None:
    for split in ("train", "test"):
        image_folder(tmp_path / "d" / split)
    pictures(tmp_path / "d", ["cover.png", "more/c/0.png", ".thumbnails/c/0.png"])
    csv(tmp_path / "d/sizes.csv")
    found = ingest(tmp_path / "d", blobs, "image")
    assert found.notes[:1] == ("left out, of no split: cover.png, more/c/0.png",)
    assert found.test.rows == 24


def test_files_without_names_of_splits_are_all_read(tmp_path: Path, blobs: Blobs) -> None:
    """Also below a folder whose name says one."""
    found = ingest(image_folder(tmp_path / "test/d"), blobs, "image")
    assert found.train.rows + found.validation.rows + found.test.rows + found.probe == 24
    assert "left out" not in " ".join(found.notes)
    rows = Dataset.from_dict({"text": [f"t {i}" for i in range(40)], "label": [0, 1] * 20})
    rows.save_to_disk(str(tmp_path / "saved"))
    assert len(inputs_of(tmp_path / "saved", "text")) == 40
