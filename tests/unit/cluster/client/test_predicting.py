"""Whole tables are asked about: over HTTP and beside the cluster the same table comes back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from datasets import Dataset
from fastapi.testclient import TestClient

from cluster.client.client import Client
from cluster.client.http import Server
from cluster.data import predicting
from cluster.data.answers import ROWS, answer_table, likeliest, schema_metadata
from cluster.data.predicting import fitting, predicted
from tacl.errors import BadColumns, BadConfig, BadSample, TooLarge, TooLate, UnknownUser
from tests.support.api_scene import Local, scene
from tests.support.data_files import png

World = tuple[Client, Local]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    app, service = scene(tmp_path / "home", ann="submitter")
    with TestClient(app, raise_server_exceptions=False) as http:
        ann = Client(server=Server("http://test", "token of ann", http))
        data = tmp_path / "data.csv"
        rows = (f"a text of number {n},{'ab'[n % 2]}" for n in range(40))
        data.write_text("\n".join(("text,label", *rows)))
        ann.submit("news", data)
        ann.wait(poll=0)
        ann.compose("ann", ["+news"])
        yield ann, service


TEXTS = ["one", "two", "three"]
GIVEN = {
    "table": pa.table({"text": TEXTS, "label": [0, 1, 0]}),
    "batch": pa.record_batch({"text": TEXTS}),
    "pandas": pd.DataFrame({"number": [1.5, 2.5, 3.5], "text": TEXTS})[:3],
    "datasets": Dataset.from_dict({"text": TEXTS}),
    "list": TEXTS,
}


@pytest.mark.parametrize("kind", GIVEN)
def test_a_table_of_any_kind(world: World, kind: str) -> None:
    ann, service = world
    found = ann.predict("ann", GIVEN[kind])
    row = {"task": "news", "label": "a", "probability": 0.75, "belongs": 0.5, "none": True}
    assert found.to_pylist() == 3 * [row]
    assert found.schema.metadata[b"digest"] == ann.composition("ann").digest.encode()
    (question,) = service.questions
    assert (list(question.inputs), question.tasks) == (TEXTS, None)


def test_within_a_task_of_a_column_that_is_named(world: World) -> None:
    ann, service = world
    rows = {"title": ["t"], "body": ["b"]}
    with pytest.raises(BadColumns, match="which column holds the texts"):
        ann.predict("ann", rows)
    (row,) = ann.predict("ann", rows, "news", input_column="body").to_pylist()
    assert (row["task"], row["label"], row["belongs"], row["none"]) == ("news", "a", None, None)
    assert (list(service.questions[0].inputs), service.questions[0].tasks) == (["b"], ["news"])


def test_more_rows_than_a_request_has(world: World) -> None:
    ann, service = world
    texts = [f"text {number}" for number in range(ROWS + 10)]
    assert ann.predict("ann", texts).num_rows == len(texts)
    assert [text for one in service.questions for text in one.inputs] == texts


def test_what_is_too_large_at_once_is_asked_in_halves(world: World) -> None:
    ann, service = world
    texts = [f"{number} " + "x" * 190_000 for number in range(12)]
    assert ann.predict("ann", texts).num_rows == len(texts)
    assert [text for one in service.questions for text in one.inputs] == texts


def test_errors_are_those_of_a_query(world: World, tmp_path: Path) -> None:
    ann, service = world
    with pytest.raises(UnknownUser):
        ann.predict("bob", ["x"])
    with pytest.raises(BadSample, match="row 1"):
        ann.predict("ann", pa.table({"text": ["one", None]}))
    assert not service.questions


def test_parts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicting, "BYTES", 10)
    assert [fitting(["x"] * 7, start, 3) for start in (0, 3, 6)] == [3, 3, 1]
    sizes = [b"12345678901", b"1", b"123456789", b"1"]
    assert [fitting(sizes, start, 9) for start in range(4)] == [1, 2, 2, 1]
    assert fitting(["ß" * 5, "x"], 0, 9) == 1  # two bytes each


def test_pictures_travel_as_their_files() -> None:
    pictures = [png(shade, size=20) for shade in range(3)]
    column = pa.ipc.open_stream(predicting.as_stream(pictures)).read_all().column(0)
    assert (column.type, column.to_pylist()) == (pa.binary(), pictures)


def test_all_answers_are_of_one_model() -> None:
    """It became another one after the first request."""
    models = iter([{"digest": "old"}, *3 * [{"digest": "new"}]])

    def ask(part: Sequence[Any]) -> pa.Table:
        ranked = [{"news": [(str(one), 1.0)]} for one in part]
        return answer_table(likeliest(ranked, None), [], next(models))

    found = predicted([str(number) for number in range(ROWS + 1)], ask)
    assert found.column("label").to_pylist() == [str(number) for number in range(ROWS + 1)]
    assert found.schema.metadata == {b"digest": b"new"}
    assert next(models, None) is None


def test_heads_that_are_fitted_meanwhile_make_another_model(world: World) -> None:
    model = world[0].composition("ann")
    (term,) = model.terms
    vector = term.vector.model_copy(update={"head_blob": "f" * 64})
    fitted = model.model_copy(update={"terms": (term.model_copy(update={"vector": vector}),)})
    told = model.model_copy(update={"novelty": "e" * 64})
    assert len({schema_metadata(one)["heads"] for one in (model, fitted, told)}) == 3
    assert len({schema_metadata(one)["digest"] for one in (model, fitted, told)}) == 1


def test_what_takes_too_long_is_asked_in_halves_from_then_on() -> None:
    asked: list[int] = []

    def ask(part: Sequence[Any]) -> pa.Table:
        asked.append(len(part))
        if len(part) > 300:
            raise TooLate("a minute is over")
        ranked = [{"news": [(str(one), 1.0)]} for one in part]
        return answer_table(likeliest(ranked, None), [], {})

    found = predicted([str(number) for number in range(600)], ask)
    assert found.column("label").to_pylist() == [str(number) for number in range(600)]
    assert asked == [600, 300, 300]


@pytest.mark.parametrize("kind", [TooLarge, TooLate])
def test_one_row_that_is_too_much_is_refused(kind: type[Exception]) -> None:
    def ask(part: Sequence[Any]) -> pa.Table:
        raise kind("that is too much")

    with pytest.raises(kind):
        predicted(["x", "y"], ask)


def test_several_splits_are_refused(world: World) -> None:
    from datasets import DatasetDict

    rows = Dataset.from_dict({"text": TEXTS})
    with pytest.raises(BadConfig, match="train, test"):
        world[0].predict("ann", DatasetDict({"train": rows, "test": rows}))
