"""Data are read, cut into splits, sampled and stored: the same digests from the same data."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from fsspec.implementations.local import LocalFileSystem

from cluster.data.ingest import ingest, ingest_samples
from cluster.data.sources import opened
from cluster.domain.tasks import Reading
from cluster.storage.blobs import Blobs
from tacl.errors import BadColumns, EmptySplit, ModalityMismatch
from tests.support.data_files import csv, image_folder, png, rows


def test_one_split_is_cut_in_three_and_sampled(tmp_path: Path, blobs: Blobs) -> None:
    found = ingest(str(csv(tmp_path / "d.csv", 400)), blobs, "text")
    assert (found.input_column, found.label_column, found.classes) == ("text", "label", ("a", "b"))
    train, validation, test, shard = (
        rows(blobs, ref) for ref in (found.train, found.validation, found.test, found.shard)
    )
    probe = {r["input"] for r in shard if r["probe"]}
    assert (len(validation), len(test), len(probe), len(shard)) == (40, 40, 64, 320)
    trained = {r["input"] for r in train}
    assert len(trained) == 320 - 64
    parts = [trained, probe, {r["input"] for r in validation}, {r["input"] for r in test}]
    assert len(set().union(*parts)) == 400 == sum(len(part) for part in parts)
    assert {r["input"] for r in shard} == trained | probe
    for row in [*train, *validation, *test]:
        assert row["label"] == int(row["input"].split()[-1]) % 2


def test_a_given_test_split_is_left_whole(tmp_path: Path, blobs: Blobs) -> None:
    csv(tmp_path / "d/train.csv", 300)
    csv(tmp_path / "d/test.csv", 30)
    found = ingest(tmp_path / "d", blobs, "text")
    assert found.test.rows == 30
    assert found.validation.rows == 30
    assert found.train.rows == 300 - 30 - 64


def test_a_validation_split_is_the_test_where_there_is_no_other(
    tmp_path: Path, blobs: Blobs
) -> None:
    csv(tmp_path / "d/train.csv", 100)
    csv(tmp_path / "d/validation.csv", 20)
    assert ingest(tmp_path / "d", blobs, "text").test.rows == 20


def test_same_data_and_seed_same_digests(tmp_path: Path, blobs: Blobs) -> None:
    data = csv(tmp_path / "d.csv", 100)
    assert ingest(data, blobs, "text") == ingest(data, blobs, "text")
    assert ingest(data, blobs, "text", seed=1).train != ingest(data, blobs, "text").train


def test_an_edited_file_is_read_again(tmp_path: Path, blobs: Blobs) -> None:
    data = csv(tmp_path / "d.csv", 100)
    before = ingest(data, blobs, "text")
    csv(tmp_path / "d.csv", 200)
    assert ingest(data, blobs, "text").train.rows > before.train.rows


def test_images_keep_their_original_bytes(tmp_path: Path, blobs: Blobs) -> None:
    folder = image_folder(tmp_path / "pictures", suffix="jpg")
    originals = {p.read_bytes(): p.parent.name for p in folder.rglob("*.jpg")}
    found = ingest(folder, blobs, "image")
    assert found.classes == ("a", "b")
    for ref in (found.train, found.validation, found.test):
        for row in rows(blobs, ref):
            assert originals[row["input"]] == found.classes[row["label"]]
    assert all(row["input"] in originals for row in rows(blobs, found.shard))


def test_parquet_of_bytes_without_a_description_is_images(tmp_path: Path, blobs: Blobs) -> None:
    pictures = [{"bytes": png(i), "path": None} for i in range(40)]
    table = pa.table({"picture": pictures, "kind": [i % 4 for i in range(40)]})
    pq.write_table(table, tmp_path / "d.parquet")
    found = ingest(tmp_path / "d.parquet", blobs, "image")
    assert (found.input_column, found.label_column) == ("picture", "kind")
    assert found.classes == ("0", "1", "2", "3")


@pytest.mark.parametrize("name", ["ag_news", "clinc150"])
def test_real_text(shared: Path, blobs: Blobs, name: str) -> None:
    found = ingest(shared / "data/text" / name, blobs, "text")
    manifest = json.loads((shared / "data/manifest.json").read_text())[f"text/{name}"]
    assert list(found.classes) == manifest["class_names"]
    assert found.test.rows == manifest["test_rows"]
    assert found.train.rows + found.validation.rows + 64 == manifest["train_rows"]
    assert found.shard.rows == 1024


def test_real_images(shared: Path, blobs: Blobs) -> None:
    found = ingest(shared / "data/vision/flowers5", blobs, "image")
    assert (len(found.classes), found.validation.rows, found.shard.rows) == (5, 250, 1024)


def test_columns_by_repeated_values_and_by_name(tmp_path: Path, blobs: Blobs) -> None:
    data = csv(tmp_path / "d.csv", header="review,sentiment")
    found = ingest(data, blobs, "text")
    assert (found.input_column, found.label_column) == ("review", "sentiment")
    table = {
        "id": list(range(20)),
        "title": [f"t{i}" for i in range(20)],
        "body": [f"b{i}" for i in range(20)],
        "x": [i % 2 for i in range(20)],
        "y": ["pn"[i % 2] for i in range(20)],
    }
    several = Dataset.from_dict(table)
    with pytest.raises(
        BadColumns, match="--label-column NAME .*HTTP: label_column; page: Column of classes"
    ):
        ingest(several, blobs, "text")
    with pytest.raises(BadColumns, match=r"title \(string\).*--input-column"):
        ingest(several, blobs, "text", Reading(label_column="y"))
    body = Reading(label_column="y", input_column="body")
    named = ingest(several, blobs, "text", body)
    assert named.classes == ("n", "p")
    with pytest.raises(BadColumns, match=r"no column 'bodi' .*did you mean body\?"):
        ingest(several, blobs, "text", Reading(label_column="y", input_column="bodi"))
    with pytest.raises(BadColumns, match="20 different values in 20 rows"):
        ingest(several, blobs, "text", Reading(label_column="id", input_column="body"))


def test_numbers_get_the_names_given(blobs: Blobs) -> None:
    data = Dataset.from_dict({"text": [f"t{i}" for i in range(20)], "label": [0, 1] * 10})
    assert ingest(data, blobs, "text").classes == ("0", "1")
    assert ingest(data, blobs, "text", Reading(classes=("cat", "dog"))).classes == ("cat", "dog")
    ten = Dataset.from_dict({"text": [f"t{i}" for i in range(60)], "label": [2, 10, 3] * 20})
    assert ingest(ten, blobs, "text").classes == ("2", "3", "10")


def test_a_declared_class_without_rows_is_left_out(tmp_path: Path, blobs: Blobs) -> None:
    features = Features({"text": Value("string"), "label": ClassLabel(names=["a", "none", "b"])})
    table = {"text": [f"t{i}" for i in range(20)], "label": [0, 2] * 10}
    found = ingest(Dataset.from_dict(table, features=features), blobs, "text")
    assert found.classes == ("a", "b")
    assert {r["label"] for r in rows(blobs, found.train)} == {0, 1}


def test_the_probe_leaves_every_class_a_training_row(blobs: Blobs) -> None:
    labels = [f"c{i:03}" for i in range(100) for _ in range(2)]
    data = DatasetDict(
        {
            "train": Dataset.from_dict({"text": [f"t{i}" for i in range(200)], "label": labels}),
            "test": Dataset.from_dict({"text": ["x", "y"], "label": ["c000", "c001"]}),
        }
    )
    with pytest.raises(EmptySplit, match="too few"):
        ingest(data, blobs, "text")  # one row a class for validation, one to train: none to probe
    data["train"] = Dataset.from_dict(
        {"text": [f"t{i}" for i in range(300)], "label": labels + labels[::2]}
    )
    found = ingest(data, blobs, "text")
    assert len({r["label"] for r in rows(blobs, found.train)}) == 100


def test_samples_need_no_labels(tmp_path: Path, blobs: Blobs) -> None:
    (tmp_path / "lines.txt").write_text("\n".join(f"line {i}" for i in range(2000)))
    ref = ingest_samples(tmp_path / "lines.txt", blobs, "text")
    found = rows(blobs, ref)
    assert len({r["input"] for r in found}) == 1024
    assert sum(r["probe"] for r in found) == 64
    flat = image_folder(tmp_path / "pictures", "a", 20) / "a"
    assert ingest_samples(flat, blobs, "image").rows == 20
    assert ingest_samples(csv(tmp_path / "d.csv"), blobs, "text").rows == 40
    with pytest.raises(ModalityMismatch):
        ingest_samples(flat, blobs, "text")


def test_progress_counts_every_row_checked(tmp_path: Path, blobs: Blobs) -> None:
    seen: list[tuple[int, int]] = []
    ingest(csv(tmp_path / "d.csv", 100), blobs, "text", progress=lambda *p: seen.append(p))
    assert seen[-1] == (100, 100)


def test_a_folder_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`datasets` lists it for every pattern by which a name may say a split, and each time anew."""
    for split in ("train", "test"):
        image_folder(tmp_path / "pictures" / split)
    listed: list[str] = []
    usual = LocalFileSystem.ls

    def ls(files: LocalFileSystem, path: str, **how: Any) -> object:
        listed.append(path)
        return usual(files, path, **how)

    monkeypatch.setattr(LocalFileSystem, "ls", ls)
    for more in range(2):  # and what is new in it is seen
        (tmp_path / "pictures/train/a" / f"{more}.png").write_bytes(png(more))
        listed.clear()
        with opened(tmp_path / "pictures") as found:
            assert {name: len(rows) for name, rows in found.splits.items()} == {
                "train": 25 + more,
                "test": 24,
            }
        assert max(Counter(listed).values()) < 6
