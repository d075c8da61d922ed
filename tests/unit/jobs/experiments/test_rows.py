"""Rows of a task that are test rows of another take no part."""

from __future__ import annotations

from pathlib import Path

import pytest
from datasets import Dataset

from cluster.domain.base import BlobRef
from cluster.storage import samples
from cluster.storage.blobs import Blobs
from jobs.experiments import rows as module
from jobs.experiments.cache import Cell, Cells
from jobs.experiments.context import Experiment
from jobs.experiments.rows import stored_rows, without_test_rows
from jobs.experiments.suites import Source
from tacl.errors import EmptySplit


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs")


def made(place: Path, blobs: Blobs, name: str, texts: list[str], tests: list[str]) -> Cell:
    for split, rows in (("train", texts), ("test", tests)):
        table = Dataset.from_dict({"text": rows, "label": ["ab"[n % 2] for n in range(len(rows))]})
        (place / "data" / name).mkdir(parents=True, exist_ok=True)
        table.to_parquet(place / "data" / name / f"{split}.parquet")
    return stored_rows(Cells(place / "cells"), blobs, place / "data", Source(name), "text", 0)


def test_every_data_set_is_read_once_however_many_tasks_there_are(
    place: Path, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, read = module._content, list[str]()

    def counted(folder: Path) -> str:
        read.append(folder.name)
        return content(folder)

    monkeypatch.setattr(module, "_content", counted)
    again = Experiment(experiment.suite, 0, place / "data", experiment.cells, experiment.base)
    for task in (*again.pool, "generic", "target"):
        assert again.rows(task).classes
    assert sorted(read) == ["generic", "one", "target", "three", "two"]


def seen(blobs: Blobs, cell: Cell) -> set[samples.Raw]:
    """All that a head, a vector or another task's penalty may look at."""
    shard = BlobRef(**cell.facts["shard"])
    parts = [samples.training_inputs(blobs, shard), samples.probe_inputs(blobs, shard)]
    labelled = (BlobRef(**cell.facts[part]) for part in ("train", "validation"))
    return set().union(*parts, *(samples.labelled_rows(blobs, ref)[0] for ref in labelled))


def test_test_rows_of_another_task_are_seen_by_nothing(tmp_path: Path, blobs: Blobs) -> None:
    shared = [f"of both {n}" for n in range(9)]
    first = made(tmp_path, blobs, "one", shared + [f"one {n}" for n in range(60)], ["x", "y"])
    other = made(tmp_path, blobs, "two", [f"two {n}" for n in range(60)], shared)
    kept = without_test_rows(Cells(tmp_path / "cells"), blobs, "one", first, [other])
    assert seen(blobs, first) >= set(shared)
    assert seen(blobs, kept) == seen(blobs, first) - set(shared)
    assert kept.facts["test"] == first.facts["test"]


def test_a_task_that_shares_nothing_stays_as_it_is(tmp_path: Path, blobs: Blobs) -> None:
    first = made(tmp_path, blobs, "one", [f"one {n}" for n in range(60)], ["x", "y"])
    other = made(tmp_path, blobs, "two", [f"two {n}" for n in range(60)], ["z", "w"])
    assert (
        without_test_rows(Cells(tmp_path / "cells"), blobs, "one", first, [other]).facts
        == first.facts
    )


def test_a_task_whose_rows_are_all_test_rows_of_another_is_named(
    tmp_path: Path, blobs: Blobs
) -> None:
    texts = [f"text {n}" for n in range(60)]
    first = made(tmp_path, blobs, "one", texts, ["x", "y"])
    other = made(tmp_path, blobs, "two", ["z", "w"] * 30, texts)
    with pytest.raises(EmptySplit, match="every train row of one is a test row of another task"):
        without_test_rows(Cells(tmp_path / "cells"), blobs, "one", first, [other])
