"""Every kind of bad data is refused with one message, and nothing of it is stored."""

from __future__ import annotations

import errno
import io
import json
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, Features, Value, load_dataset
from datasets.arrow_writer import ArrowWriter
from PIL import Image

from cluster.data.frames import write_rows
from cluster.data.ingest import Ingested, ingest, ingest_shots
from cluster.data.sources import asked_a_hub, finds_no_format
from cluster.domain.tasks import Reading
from cluster.storage.blobs import Blobs
from tacl.errors import (
    BadColumns,
    BadSample,
    DataNotFound,
    EmptySplit,
    LabelOutOfRange,
    ModalityMismatch,
    StorageUnavailable,
    TooFewClasses,
)
from tests.support.data_files import csv, image_folder, stored


def truncated(tmp_path: Path) -> Path:
    folder = image_folder(tmp_path / "pictures")
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    whole = io.BytesIO()
    Image.fromarray(noise).save(whole, "JPEG")
    (folder / "b/07.png").unlink()
    (folder / "b/07.jpg").write_bytes(whole.getvalue()[:-900])
    return folder


def garbage(tmp_path: Path) -> Path:
    folder = image_folder(tmp_path / "pictures")
    (folder / "a/03.png").write_bytes(b"this is no picture")
    return folder


def strip(tmp_path: Path) -> Path:
    folder = image_folder(tmp_path / "pictures")
    Image.new("RGB", (1200, 20)).save(folder / "a/03.png")
    return folder


def blank_file(tmp_path: Path) -> Path:
    folder = image_folder(tmp_path / "pictures")
    (folder / "a/03.png").write_bytes(b"")
    return folder


def json_lines(tmp_path: Path, odd: object) -> Path:
    texts: list[object] = [f"text {i}" for i in range(40)]
    texts[17] = odd
    lines = [json.dumps({"text": t, "label": "ab"[i % 2]}) for i, t in enumerate(texts)]
    path = tmp_path / "d.jsonl"
    path.write_text("\n".join(lines))
    return path


def empty_json(tmp_path: Path) -> Path:
    (tmp_path / "d.jsonl").touch()
    return tmp_path / "d.jsonl"


def nothing_written(tmp_path: Path) -> Path:
    write_rows([], tmp_path / "d.parquet")
    return tmp_path / "d.parquet"


def bytes_as_text(tmp_path: Path) -> Path:
    raw = pa.array([b"\xff\xfe\xfd" if i == 5 else b"fine" for i in range(40)])
    table = pa.table({"text": raw.view(pa.string()), "label": ["ab"[i % 2] for i in range(40)]})
    pq.write_table(table, tmp_path / "d.parquet")
    return tmp_path / "d.parquet"


def numbers_as_text(tmp_path: Path) -> Path:
    table = pa.table({"text": list(range(40)), "label": ["ab"[i % 2] for i in range(40)]})
    pq.write_table(table, tmp_path / "d.parquet")
    return tmp_path / "d.parquet"


def empty_test(tmp_path: Path) -> Path:
    csv(tmp_path / "d/train.csv")
    (tmp_path / "d/test.csv").write_text("text,label\n")
    return tmp_path / "d"


def empty_parquet(tmp_path: Path) -> Path:
    strings = pa.array([], pa.string())
    pq.write_table(pa.table({"text": strings, "label": strings}), tmp_path / "d.parquet")
    return tmp_path / "d.parquet"


def unseen_class(tmp_path: Path) -> Path:
    csv(tmp_path / "d/train.csv", labels="ab")
    csv(tmp_path / "d/test.csv", labels="abz")
    return tmp_path / "d"


def class_label_outside(tmp_path: Path) -> Path:
    features = Features({"text": Value("string"), "label": ClassLabel(names=["a", "b"])})
    data = Dataset.from_dict({"text": [f"t{i}" for i in range(40)], "label": [0, 1] * 20}, features)
    data.to_parquet(tmp_path / "good.parquet")
    good = pq.read_table(tmp_path / "good.parquet")
    labels = pa.array([0, 1] * 19 + [0, 7], pa.int64())
    pq.write_table(good.set_column(1, good.schema.field(1), labels), tmp_path / "d.parquet")
    return tmp_path / "d.parquet"


def folder_of(tmp_path: Path, name: str, content: bytes) -> Path:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / name).write_bytes(content)
    return tmp_path / "d"


REFUSED = {
    "no such path": (lambda p: p / "nothing/here.csv", "text", {}, DataNotFound, "here.csv"),
    "nearly such a file": (
        lambda p: folder_of(p, "reviews.csv", b"x") / "reviwes.csv",
        "text",
        {},
        DataNotFound,
        r"did you mean reviews\.csv\?",
    ),
    "no such folder": (lambda p: "../nowhere", "text", {}, DataNotFound, "nowhere"),
    "no such user": (lambda p: "~nobody-here/d.csv", "text", {}, DataNotFound, "nobody-here/d.csv"),
    "unknown hub id": (lambda p: "someone/something", "text", {}, DataNotFound, "someone"),
    "empty folder": (lambda p: p, "text", {}, DataNotFound, r"can be read at [^ ]+: The directory"),
    "odd format": (lambda p: folder_of(p, "a.weird", b"x"), "text", {}, DataNotFound, "Parquet"),
    "broken parquet": (
        lambda p: folder_of(p, "a.parquet", b"PAR1 and no more"),
        "text",
        {},
        BadSample,
        "cannot be read",
    ),
    "truncated picture": (truncated, "image", {}, BadSample, r"07\.jpg.*truncated"),
    "no picture": (garbage, "image", {}, BadSample, r"03\.png.*not a readable picture"),
    "strip of a picture": (strip, "image", {}, BadSample, r"03\.png.*1200 x 20.*too long"),
    "empty picture": (blank_file, "image", {}, BadSample, r"03\.png.*empty"),
    "number among texts": (lambda p: json_lines(p, 5), "text", {}, BadSample, "int '5'"),
    "list among texts": (lambda p: json_lines(p, ["a"]), "text", {}, BadSample, "list"),
    "no text": (lambda p: json_lines(p, None), "text", {}, BadSample, "row 17.*nothing"),
    "blank text": (lambda p: json_lines(p, " \n"), "text", {}, BadSample, "row 17.*blank"),
    "zero bytes": (lambda p: json_lines(p, "a\0b"), "text", {}, BadSample, "row 17.*binary"),
    "no utf-8": (bytes_as_text, "text", {}, BadSample, "not text"),
    "numbers as texts": (numbers_as_text, "text", {}, BadColumns, r"text \(int64\)"),
    "numbers named as texts": (
        numbers_as_text,
        "text",
        {"input_column": "text"},
        BadSample,
        "holds no texts",
    ),
    "one class": (lambda p: csv(p / "d.csv", labels="a"), "text", {}, TooFewClasses, "one class"),
    "one folder": (lambda p: image_folder(p / "d", "a"), "image", {}, TooFewClasses, "sub-folder"),
    "empty split": (empty_test, "text", {}, EmptySplit, "has no rows"),
    "empty file": (empty_parquet, "text", {}, EmptySplit, "has no rows"),
    "empty file of JSON": (empty_json, "text", {}, EmptySplit, "has no rows"),
    "nothing of a program": (nothing_written, "text", {}, EmptySplit, "has no rows"),
    "only two rows": (lambda p: csv(p / "d.csv", 4), "text", {}, EmptySplit, "rows"),
    "class not in train": (unseen_class, "text", {}, EmptySplit, "no row of class z"),
    "label outside": (class_label_outside, "text", {}, LabelOutOfRange, "row 39.*7.*a, b"),
    "label not listed": (
        lambda p: csv(p / "d.csv", labels="abc"),
        "text",
        {"classes": ["a", "b"]},
        LabelOutOfRange,
        "'c'.*a, b",
    ),
    "texts for pictures": (lambda p: csv(p / "d.csv"), "image", {}, ModalityMismatch, "pictures"),
    "pictures for texts": (
        lambda p: image_folder(p / "d"),
        "text",
        {},
        ModalityMismatch,
        r"image \(image\)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_at_once_and_nothing_stored(tmp_path: Path, blobs: Blobs, case: str) -> None:
    make, modality, options, error, match = REFUSED[case]
    with pytest.raises(error, match=match) as caught:
        ingest(make(tmp_path), blobs, modality, Reading(**options))
    assert type(caught.value) is error
    assert "\n" not in str(caught.value)
    assert stored(tmp_path) == []


def test_the_class_of_an_answer_is_plain_data(tmp_path: Path, blobs: Blobs) -> None:
    found = ingest(csv(tmp_path / "d.csv"), blobs, "text")
    assert isinstance(found, Ingested)
    assert json.loads(found.train.model_dump_json()) == found.train.model_dump()


def labelled_with(path: Path, names: list[str]) -> Path:
    """Two rows of each class."""
    rows = {"text": [f"text {i}" for i in range(2 * len(names))], "label": names * 2}
    pq.write_table(pa.table(rows), path)
    return path


def test_classes_are_as_many_as_heads_bear_and_have_names_that_may_be_shown(
    tmp_path: Path, blobs: Blobs
) -> None:
    """Who may submit is not trusted with everybody's heads, nor with others' terminals."""
    many = labelled_with(tmp_path / "many.parquet", [f"class {i}" for i in range(10_001)])
    with pytest.raises(BadColumns, match=r"10,001 classes; at most 10,000"):
        ingest(many, blobs, "text")
    for odd, why in (
        ("x" * 1_000_000, "class of 1,000,000 characters, which begins 'xxx"),
        ("a\x1b]0;title\x07", "control characters"),
        ("two\nlines", "control characters"),
    ):
        path = labelled_with(tmp_path / "odd.parquet", ["a", "b", "c", "d", odd])
        with pytest.raises(BadColumns, match=why) as refused:
            ingest(path, blobs, "text")
        assert len(str(refused.value)) < 300
        assert str(refused.value).isprintable()
    assert not list(blobs.stored())


def test_classes_cost_as_much_as_rows(tmp_path: Path, blobs: Blobs) -> None:
    """Each of them was looked for in all rows: with as many classes as may be, for minutes."""
    names = [f"class {i}" for i in range(10_000)]
    data = labelled_with(tmp_path / "d.parquet", names * 2)
    began = time.process_time()
    assert len(ingest(data, blobs, "text").classes) == 10_000
    assert (
        len(ingest_shots(data, blobs, "text", 1, Reading(classes=tuple(names))).classes) == 10_000
    )
    assert time.process_time() - began < 20


def test_what_is_no_class_is_quoted_in_short(tmp_path: Path, blobs: Blobs) -> None:
    data = labelled_with(tmp_path / "d.parquet", ["a", "b", "c", "d", "x" * 1_000_000])
    with pytest.raises(LabelOutOfRange) as refused:
        ingest(data, blobs, "text", Reading(classes=("a", "b", "c", "d")))
    assert len(str(refused.value)) < 2000


@pytest.mark.parametrize("end", ["", "one and/or the other,b\n"])
def test_a_text_too_long_for_a_name_is_no_file(tmp_path: Path, end: str) -> None:
    with pytest.raises(DataNotFound, match="no data at text,label"):
        ingest("text,label\n" + "a sentence,b\n" * 50 + end, Blobs(tmp_path), "text")


def test_a_full_disk_is_no_fault_of_the_data(
    tmp_path: Path, blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data are converted in a temporary folder."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ArrowWriter, "write_table", full)
    data = tmp_path / "d.csv"
    data.write_text("text,label\n" + "a,b\nc,d\n" * 20)
    with pytest.raises(StorageUnavailable, match="no room to read .*No space left on device"):
        ingest(data, blobs, "text")


def test_what_datasets_says_of_a_file_and_of_a_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its classes are of other errors too: these are told by its own words."""
    monkeypatch.chdir(tmp_path)
    (file := tmp_path / "notes.xyz").write_text("no format of any reader")
    with pytest.raises(FileNotFoundError) as unreadable:
        load_dataset(str(tmp_path), data_files=str(file))
    assert finds_no_format(unreadable.value)
    assert not asked_a_hub(unreadable.value)
    with pytest.raises(ConnectionError) as nowhere:  # no test reaches a hub
        load_dataset("nobody/nothing")
    assert asked_a_hub(nowhere.value)
    assert not finds_no_format(nowhere.value)
