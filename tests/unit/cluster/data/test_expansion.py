"""Files of some hundred bytes that become gigabytes: refused before they do."""

from __future__ import annotations

import gzip
import resource
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.data.ingest import ingest
from cluster.storage.blobs import Blobs
from tacl.errors import BadSample, TooLarge


def repeated(value: object, times: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(times, np.int32)), pa.array([value]))


def of_one_text(path: Path) -> None:
    """2 GB of text."""
    rows = pa.table({"text": repeated("x" * 1_000_000, 2000), "label": np.arange(2000) % 2})
    pq.write_table(rows, path, compression="zstd", store_schema=False)


def of_many_rows(path: Path) -> None:
    rows = pa.table({"text": repeated("ab", 10_000_000), "label": np.zeros(10_000_000, np.int64)})
    pq.write_table(rows, path, compression="zstd", store_schema=False)


def of_a_list(path: Path) -> None:
    lists = pa.array([np.zeros(10_000_000, np.int64), *[[]] * 23])
    rows = {"text": [f"text {n}" for n in range(24)], "label": [0, 1] * 12, "extra": lists}
    pq.write_table(pa.table(rows), path, compression="zstd")


def of_one_page(path: Path) -> None:
    texts = ["x" * 300_000_000, *(f"text {n}" for n in range(23))]
    rows = pa.table({"text": texts, "label": [0, 1] * 12})
    pq.write_table(rows, path, compression="zstd", use_dictionary=False)


@pytest.mark.parametrize(
    "write", [of_one_text, of_many_rows, of_a_list, of_one_page], ids=lambda made: made.__name__
)
def test_a_parquet_file_is_refused_before_it_fills_the_memory(tmp_path: Path, write) -> None:
    write(bomb := tmp_path / "bomb.parquet")
    assert bomb.stat().st_size < 200_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TooLarge, match="bomb.parquet becomes more than"):
        ingest(bomb, Blobs(tmp_path / "blobs"), "text")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB


@pytest.mark.parametrize("name", ["data.csv", "data.jsonl", "data.json"])
def test_a_packed_file_is_not_unpacked(tmp_path: Path, name: str) -> None:
    bomb = tmp_path / name
    bomb.write_bytes(gzip.compress(b"text,label\n" + b"one,1\ntwo,2\n" * 1000))
    with pytest.raises(BadSample):
        ingest(bomb, Blobs(tmp_path / "blobs"), "text")


@pytest.mark.parametrize("name", ["rows.csv.gz", "folder/train.csv.gz"])
def test_a_packed_table_is_refused_before_it_fills_the_memory(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    with gzip.open(tmp_path / name, "wb", 1) as bomb:
        bomb.write(b"text,label\n")
        for _ in range(30):
            bomb.write((b"x" * 1000 + b",1\n") * 10_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TooLarge, match="csv.gz becomes more than"):
        ingest(tmp_path / name.split("/")[0], Blobs(tmp_path / "blobs"), "text")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB


def test_what_compresses_as_data_do_is_read(tmp_path: Path) -> None:
    texts = [f"a sentence about the number {n}, said again and again" for n in range(5000)]
    rows = pa.table({"text": texts, "label": [n % 2 for n in range(5000)]})
    pq.write_table(rows, tmp_path / "data.parquet", compression="zstd")
    assert ingest(tmp_path / "data.parquet", Blobs(tmp_path / "blobs"), "text").train.rows


def test_a_picture_that_is_repeated_counts_as_often_as_it_is_there(tmp_path: Path) -> None:
    pictures = pa.StructArray.from_arrays([pa.array([b"x" * 200_000] * 1500)], ["bytes"])
    rows = pa.table({"image": pictures, "label": np.arange(1500) % 2})
    pq.write_table(rows, bomb := tmp_path / "bomb.parquet", compression="zstd")
    assert bomb.stat().st_size < 10_000
    with pytest.raises(TooLarge, match="becomes more than 256 MiB"):
        ingest(bomb, Blobs(tmp_path / "blobs"), "image")
