"""Rows that a program holds are a data set as they are, in every form people have them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from datasets import Dataset, DatasetDict
from fastapi.testclient import TestClient
from PIL import Image

from cluster.client.client import Client
from cluster.client.http import Server
from cluster.data.frames import one_split
from cluster.data.ingest import ingest, ingest_samples
from cluster.storage.blobs import Blobs
from cluster.storage.samples import labelled_rows
from tacl.errors import BadColumns, BadConfig, BadSample, DataNotFound
from tests.support.api_scene import scene
from tests.support.data_files import png

COLUMNS = {"text": [f"sentence {i}" for i in range(40)], "label": ["ab"[i % 2] for i in range(40)]}
DICTS = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
HELD: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "selected rows": lambda: pd.DataFrame(COLUMNS)[::-1],
    "categories": lambda: pd.DataFrame(COLUMNS).astype({"label": "category"}),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "polars, categories": lambda: pl.DataFrame(COLUMNS).cast({"label": pl.Categorical}),
    "polars, enumeration": lambda: pl.DataFrame(COLUMNS).cast({"label": pl.Enum(["b", "a"])}),
    "arrow": lambda: pa.table(COLUMNS),
    "columns": lambda: COLUMNS,
    "dicts": lambda: DICTS,
    "tuples": lambda: [tuple(row.values()) for row in DICTS],
    "datasets": lambda: Dataset.from_dict(COLUMNS),
    "one split": lambda: DatasetDict({"train": Dataset.from_dict(COLUMNS)}),
}


@pytest.mark.parametrize("form", HELD)
def test_every_form_is_the_same_rows(tmp_path: Path, form: str) -> None:
    blobs = Blobs(tmp_path / "blobs")
    found = ingest(HELD[form](), blobs, "text")
    assert (found.classes, found.label_column) == (("a", "b"), "label")
    kept = [labelled_rows(blobs, part) for part in (found.train, found.validation, found.test)]
    for texts, labels in kept:
        assert [int(str(text).split()[1]) % 2 for text in texts] == labels
    assert len({text for texts, _ in kept for text in texts}) + 8 == 40


@pytest.mark.parametrize("form", HELD)
def test_every_form_is_uploaded(tmp_path: Path, form: str) -> None:
    app, _ = scene(tmp_path / "home", ann="submitter")
    with TestClient(app, raise_server_exceptions=False) as http:
        client = Client(server=Server("http://test", "token of ann", http))
        client.submit("news", HELD[form]())
        assert client.status().tasks[0].rows == 24


def test_pictures_and_inputs_alone(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    pictures = [Image.new("RGB", (8, 8), (i, 0, 0)) for i in range(40)]
    drawn = [(picture, i % 2) for i, picture in enumerate(pictures)]
    raw = [{"picture": png(0), "label": i % 2} for i in range(40)]
    assert ingest(drawn, blobs, "image").classes == ingest(raw, blobs, "image").classes
    assert ingest_samples([f"line {i}" for i in range(20)], blobs, "text").rows == 20


def test_a_name_that_some_rows_lack_is_not_lost() -> None:
    assert one_split([{"a": 1}, {"a": 2, "b": 3}]).to_dict() == {"a": [1, 2], "b": [None, 3]}


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ([("a", 1, 2)], BadColumns, "row 0 is no pair"),
        ([("a", 1), {"text": "b"}], BadColumns, "row 1 is no pair"),
        ([{"text": 1}, {"text": "b"}], BadSample, "no table"),
        ({"text": ["a"], "label": [1, 2]}, BadSample, "no table"),
        ([("a", 2**64), ("b", 1)], BadSample, "no table"),
        (17, BadConfig, "of type int; give a path"),
        ((row for row in DICTS), BadConfig, "of type generator; give"),
    ],
)
def test_what_is_no_table_is_refused(
    tmp_path: Path, data: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        ingest(data, Blobs(tmp_path / "blobs"), "text")
    assert not list((tmp_path / "blobs").rglob("*.*"))


def test_a_path_is_still_a_path(tmp_path: Path) -> None:
    with pytest.raises(DataNotFound):
        ingest(tmp_path / "none.csv", Blobs(tmp_path / "blobs"), "text")
    both = DatasetDict({name: Dataset.from_dict(COLUMNS) for name in ("train", "test")})
    with pytest.raises(BadConfig, match="found train, test; give one"):
        one_split(both)


def test_columns_of_one_name_are_refused() -> None:
    rows = pa.table([["a", "b"], ["c", "d"]], names=["text", "text"])
    with pytest.raises(BadColumns, match="several columns have one name: text"):
        one_split(rows)
