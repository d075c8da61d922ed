"""A few labelled rows, to fit a composition to."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.data.ingest import ingest_shots
from cluster.storage.blobs import Blobs
from tacl.errors import (
    BadColumns,
    BadSample,
    EmptySplit,
    ModalityMismatch,
    TooFewClasses,
)
from tests.support.data_files import csv, rows, stored


def test_so_many_rows_of_each_class_are_learned_and_the_rest_judges(
    tmp_path: Path, blobs: Blobs
) -> None:
    data = csv(tmp_path / "d.csv", 41)
    few, more = (ingest_shots(data, blobs, "text", shots) for shots in (2, 5))
    assert few.classes == ("a", "b")
    learned = rows(blobs, few.shots)
    assert [row["label"] for row in learned].count(0) == 2
    assert [row["label"] for row in learned].count(1) == 2
    assert few.held_out is not None
    judged = rows(blobs, few.held_out)
    assert len(judged) == 41 - 4
    inputs = {row["input"] for row in learned}
    assert not inputs & {row["input"] for row in judged}
    assert inputs < {row["input"] for row in rows(blobs, more.shots)}  # more shots hold fewer
    assert ingest_shots(data, blobs, "text", 2) == few


def test_a_test_split_judges(tmp_path: Path, blobs: Blobs) -> None:
    csv(tmp_path / "d" / "train.csv", 20)
    csv(tmp_path / "d" / "test.csv", 30)
    found = ingest_shots(tmp_path / "d", blobs, "text", 3)
    assert found.held_out is not None
    assert (found.shots.rows, found.held_out.rows) == (6, 30)


def test_nothing_is_held_out_where_nothing_is_left(tmp_path: Path, blobs: Blobs) -> None:
    found = ingest_shots(csv(tmp_path / "d.csv", 8), blobs, "text", 4)
    assert (found.shots.rows, found.held_out) == (8, None)


def test_one_row_of_each_of_many_classes_is_enough(tmp_path: Path, blobs: Blobs) -> None:
    found = ingest_shots(csv(tmp_path / "d.csv", 9, labels="abcdefghi"), blobs, "text", 1)
    assert (found.classes, found.shots.rows, found.held_out) == (tuple("abcdefghi"), 9, None)


def test_bad_shots_are_refused_and_nothing_is_stored(tmp_path: Path, blobs: Blobs) -> None:
    data = csv(tmp_path / "d.csv", 9)
    with pytest.raises(EmptySplit, match="class b has 4 training rows, and 5 .* fewer shots"):
        ingest_shots(data, blobs, "text", 5)
    with pytest.raises(ModalityMismatch):
        ingest_shots(data, blobs, "image", 2)
    with pytest.raises(TooFewClasses):
        ingest_shots(csv(tmp_path / "one.csv", labels="a"), blobs, "text", 2)
    (tmp_path / "bare.txt").write_text("\n".join(f"a line {i}" for i in range(9)))
    with pytest.raises(BadColumns, match="--label-column"):
        ingest_shots(tmp_path / "bare.txt", blobs, "text", 2)
    (tmp_path / "blank.csv").write_text("text,label\none,a\n ,b\ntwo,a\nthree,b\n")
    with pytest.raises(BadSample, match="blank"):
        ingest_shots(tmp_path / "blank.csv", blobs, "text", 1)
    assert stored(tmp_path) == []
