"""Rows that name files: no file of the machine is read for them, whatever the format."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from datasets import Image as ImageColumn

from cluster.data.ingest import ingest, ingest_samples
from cluster.data.validation import checked_image
from cluster.storage.blobs import Blobs
from tacl.errors import BadColumns, BadSample, EmptySplit, LabelOutOfRange
from tests.support.data_files import image_folder, png
from tests.support.opened import watched

ROWS = 12


def parquet(folder: Path, names: list[str]) -> Path:
    image = pa.array(
        [{"bytes": None, "path": name} for name in names],
        pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
    )
    features = {"image": {"_type": "Image"}, "label": {"names": ["a", "b"], "_type": "ClassLabel"}}
    about = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    table = pa.table({"image": image, "label": pa.array([i % 2 for i in range(len(names))])})
    pq.write_table(table.replace_schema_metadata(about), folder / "data.parquet")
    return folder / "data.parquet"


def json_lines(folder: Path, names: list[str]) -> Path:
    rows = [
        {"image": {"bytes": None, "path": name}, "label": i % 2} for i, name in enumerate(names)
    ]
    path = folder / "data.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A picture that belongs to somebody else."""
    path = tmp_path / "elsewhere" / "secret.png"
    path.parent.mkdir()
    path.write_bytes(png(3))
    return path


@pytest.mark.parametrize("written", [parquet, json_lines])
def test_a_file_given_alone_opens_no_other(
    tmp_path: Path, secret: Path, written: Callable[[Path, list[str]], Path]
) -> None:
    blobs = Blobs(tmp_path / "blobs")
    said = set()
    for name in (str(secret), str(tmp_path / "is not there"), "/dev/zero", str(tmp_path)):
        data = written(tmp_path, [name] * ROWS)
        with pytest.raises(BadSample) as refused:
            ingest(data, blobs, "image")
        said.add(str(refused.value).replace(Path(name).name, "NAME"))
        with pytest.raises(BadSample):
            ingest_samples(data, blobs, "image")
    assert len(said) == 1  # whether a file is there is not told
    assert not list(blobs.stored())


NESTED = {"bytes": {"dtype": "binary", "_type": "Value"}, "x": {"_type": "Image"}}
FEATURES = {  # of a column, by what it is made of; each has a picture that names a file
    "a picture beside the bytes": NESTED,
    "a list of pictures": {"_type": "List", "feature": {"_type": "Image"}},
    "in a list": {"_type": "List", "feature": NESTED},
}


FILE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
BESIDE = pa.struct([("bytes", pa.binary()), ("x", FILE)])
STORED = dict(zip(FEATURES, (BESIDE, pa.list_(FILE), pa.list_(BESIDE)), strict=True))


@pytest.mark.parametrize("what", FEATURES)
def test_no_file_is_opened_that_something_nested_names(
    tmp_path: Path, secret: Path, what: str
) -> None:
    os.mkfifo(pipe := tmp_path / "pipe.png")  # who opens it waits for ever
    said = set()
    for name in (
        str(secret),
        str(tmp_path / "is not there"),
        str(pipe),
        "http://localhost:9/a.png",
    ):
        file = {"bytes": None, "path": name}
        row = file if what == "a list of pictures" else {"bytes": png(5), "x": file}
        column = pa.array([row if FEATURES[what] is NESTED else [row]] * ROWS, STORED[what])
        features = {"image": FEATURES[what], "label": {"names": ["a", "b"], "_type": "ClassLabel"}}
        about = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
        table = pa.table({"image": column, "label": [number % 2 for number in range(ROWS)]})
        pq.write_table(table.replace_schema_metadata(about), data := tmp_path / "data.parquet")
        with watched(secret) as opened:
            try:
                said.add(str(ingest(data, Blobs(tmp_path / "blobs"), "image").classes))
            except (BadColumns, BadSample) as refused:
                said.add(str(refused))
            assert not opened()
    assert len(said) == 1  # whether a file is there is not told


@pytest.mark.parametrize("path", [7, {"bytes": b"x"}, None])
def test_a_path_that_is_no_text_is_nothing(path: object) -> None:
    assert checked_image({"bytes": png(1), "path": path}, "row 0") == png(1)
    with pytest.raises(BadSample, match="empty"):
        checked_image({"bytes": None, "path": path}, "row 0")


def test_a_folder_opens_what_lies_in_it_and_nothing_else(tmp_path: Path, secret: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "in.png").write_bytes(png(1))
    (folder / "link.png").symlink_to(secret)
    os.mkfifo(folder / "pipe.png")
    (folder / "circle.png").symlink_to(folder / "circle.png")
    for link in range(1500):
        (folder / f"{link}.png").symlink_to(folder / f"{link + 1}.png")
    assert checked_image({"bytes": None, "path": str(folder / "in.png")}, "row 0", [folder])
    odd = ("circle.png", "0.png", "a\0b", "x" * 300, "y/" * 3000, "\ud800")
    for name in ("link.png", "pipe.png", "../elsewhere/secret.png", "is not there", ".", *odd):
        with pytest.raises(BadSample, match="row 0"):
            checked_image({"bytes": None, "path": str(folder / name)}, "row 0", [folder])


def test_the_files_of_an_image_folder_are_read(tmp_path: Path) -> None:
    for name in "ab":
        for number in range(ROWS):
            path = tmp_path / "pictures" / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(number + 20 * (name == "a")))
    found = ingest(tmp_path / "pictures", Blobs(tmp_path / "blobs"), "image")
    assert found.train.rows + found.validation.rows + found.test.rows < 2 * ROWS + 1


def test_a_programs_own_data_set_may_name_its_files(tmp_path: Path) -> None:
    names = [str(tmp_path / f"{number}.png") for number in range(2 * ROWS)]
    for number, name in enumerate(names):
        Path(name).write_bytes(png(number))
    labels = [number % 2 for number in range(len(names))]
    data = Dataset.from_dict({"image": names, "label": labels}).cast_column("image", ImageColumn())
    assert ingest(data, Blobs(tmp_path / "blobs"), "image").classes == ("0", "1")


def test_a_column_that_changes_its_type_far_down_crashes_nothing(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"text": f"{i}", "label": i % 2} for i in range(2 * ROWS)]
    rows[0] |= {"long": "x" * 200_000, "odd": ""}
    rows[1] |= {"long": "x" * 200_000}  # in another block of those that the reader parses
    rows[ROWS] |= {"odd": True}
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    assert ingest(path, Blobs(tmp_path / "blobs"), "text").classes == ("0", "1")


def test_a_first_row_that_is_null_crashes_nothing(tmp_path: Path) -> None:
    rows = [json.dumps({"text": f"text {i}", "label": "ab"[i % 2]}) for i in range(40)]
    path, blobs = tmp_path / "data.jsonl", Blobs(tmp_path / "blobs")
    for nothing in ("null", "\ufeff\n null \r\nnull"):
        path.write_text("\n".join([nothing, *rows]))
        with pytest.raises(LabelOutOfRange, match="row 0 of split train.*: nothing in column"):
            ingest(path, blobs, "text")
        assert ingest(path, blobs, "text", skip_bad=True).classes == ("a", "b")
    for whole in ("null", "null null", f"[null, {', '.join(rows[:3])}]"):
        path.write_text(whole)
        with pytest.raises(EmptySplit, match="has no rows|too few rows"):
            ingest(path, blobs, "text")


def test_what_describes_pictures_crashes_nothing_either(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "pictures")
    (folder / "metadata.jsonl").write_text('null\n{"file_name": "a/00.png"}\n')
    with pytest.raises(EmptySplit, match="too few rows for a task: 2"):
        ingest(folder, Blobs(tmp_path / "blobs"), "image")
