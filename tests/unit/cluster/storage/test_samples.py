"""Samples: rows keep their role for ever, and a file that is something else is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.coordinator.arrivals import Arrivals, known
from cluster.domain.base import BlobRef
from cluster.domain.tasks import GENERIC, Arrival, Shard
from cluster.domain.visibility import Visibility
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


def test_known_is_everybody_else_by_arrival() -> None:
    blob = BlobRef(digest="d", rows=1)
    shards = [Shard(task=t, ordinal=o, blob=blob) for t, o in [("b", 2), (GENERIC, 0), ("a", 1)]]
    assert [shard.task for shard in known(shards, own="b")] == [GENERIC, "a"]
    assert [shard.task for shard in known(shards, own="new")] == [GENERIC, "a", "b"]


def test_arrivals_are_replayed_as_they_were_recorded() -> None:
    blob = BlobRef(digest="d", rows=1)
    generic, a = (Shard(task=t, ordinal=o, blob=blob) for t, o in [(GENERIC, 0), ("a", 1)])
    b, a_grown = Shard(task="b", ordinal=2, blob=blob), a.model_copy(update={"version": 2})
    arrivals = Arrivals(-1, [])
    for step, current in enumerate([[generic], [generic, b], [generic, b, a], [generic, b, a]]):
        arrivals.record(step, arrivals.newcomers(step, current))
    arrivals.record(4, arrivals.newcomers(4, [generic, a_grown, b]))
    told = [(0, generic), (1, b), (2, a), (4, a_grown)]
    again = Arrivals(4, [Arrival(step=step, shard=shard) for step, shard in told])
    for log in (arrivals, again):
        assert log.newcomers(3, [generic, a_grown, b]) == []  # told before: nothing joins there
        assert log.newcomers(5, [generic, a_grown, b]) == []
        assert [log.at(step) for step in range(6)] == [
            (generic,),
            (generic, b),
            (generic, a, b),
            (generic, a, b),
            (generic, a_grown, b),
            (generic, a_grown, b),
        ]


def test_what_was_removed_is_left_from_the_next_step_on() -> None:
    blob = BlobRef(digest="d", rows=1)
    generic, a = (Shard(task=t, ordinal=o, blob=blob) for t, o in [(GENERIC, 0), ("a", 1)])
    arrivals = Arrivals(-1, [])
    arrivals.record(0, [generic, a])
    assert arrivals.leavers(0, [generic]) == set()  # told before: nothing leaves there
    assert arrivals.leavers(1, [generic]) == {"a"}
    arrivals.record(1, [], {"a"})
    assert arrivals.leavers(2, [generic]) == set()
    again = Arrivals(1, [Arrival(step=0, shard=generic), Arrival(step=0, shard=a, left=1)])
    for log in (arrivals, again):
        assert [log.at(step) for step in range(3)] == [(generic, a), (generic,), (generic,)]


def test_a_private_task_enters_only_the_cycles_of_its_owner() -> None:
    blob = BlobRef(digest="d", rows=1)
    shards = [Shard(task=t, ordinal=o, blob=blob) for o, t in enumerate([GENERIC, "mine", "open"])]
    cycles = {who: known(shards, "new", Visibility(who, {"mine": "ann"})) for who in ("ann", "bob")}
    assert [shard.task for shard in cycles["ann"]] == [GENERIC, "mine", "open"]
    assert [shard.task for shard in cycles["bob"]] == [GENERIC, "open"]


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
