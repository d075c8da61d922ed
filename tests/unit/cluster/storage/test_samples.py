"""Samples: rows keep their role for ever, and a file that is something else is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.domain.base import BlobRef
from cluster.storage.blobs import Blobs
from cluster.storage.samples import (
    grown,
    labelled_rows,
    probe_inputs,
    store_rows,
    store_shard,
    training_inputs,
)
from tacl.errors import CorruptBlob


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path)


@pytest.mark.parametrize("inputs", [[b"\x89PNG", b"\xff\xd8", b""], ["one", "zwei", "три"]])
def test_rows_come_back_as_they_were(blobs: Blobs, inputs: list) -> None:
    shard = store_shard(blobs, inputs, [False, True, False])
    assert shard.rows == 3
    assert training_inputs(blobs, shard) == [inputs[0], inputs[2]]
    assert probe_inputs(blobs, shard) == [inputs[1]]
    assert labelled_rows(blobs, store_rows(blobs, inputs, [2, 0, 1])) == (inputs, [2, 0, 1])


def test_the_same_rows_are_the_same_blob(blobs: Blobs) -> None:
    assert store_shard(blobs, ["a"], [True]) == store_shard(blobs, ["a"], [True])
    assert store_shard(blobs, ["a"], [True]) != store_shard(blobs, ["a"], [False])


def test_growing_keeps_every_role(blobs: Blobs) -> None:
    old = store_shard(blobs, ["trained", "probe"], [False, True])
    new = store_shard(
        blobs, ["fresh probe", "trained", "probe", "fresh"], [True, True, False, False]
    )
    both = grown(blobs, old, new)
    assert both.rows == 4
    assert training_inputs(blobs, both) == ["trained", "fresh"]
    assert probe_inputs(blobs, both) == ["probe", "fresh probe"]
    assert grown(blobs, both, new) == both


def test_another_file_is_not_a_shard(blobs: Blobs) -> None:
    text = BlobRef(digest=blobs.put(b"not parquet"), rows=1)
    with pytest.raises(CorruptBlob, match="not a Parquet file"):
        training_inputs(blobs, text)
    rows = store_rows(blobs, ["a"], [0])
    with pytest.raises(CorruptBlob, match="probe"):
        probe_inputs(blobs, rows)
    with pytest.raises(CorruptBlob, match=r"should hold 2 rows .* holds 1"):
        labelled_rows(blobs, BlobRef(digest=rows.digest, rows=2))


def test_extra_columns_do_not_matter(blobs: Blobs) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"more": [1], "label": [3], "input": ["a"]}), sink)
    data = BlobRef(digest=blobs.put(sink.getvalue().to_pybytes()), rows=1)
    assert labelled_rows(blobs, data) == (["a"], [3])
