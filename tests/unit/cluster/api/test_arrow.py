"""Many rows in one request: what a stream of Arrow is answered, and what is refused of it."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.api import arrow
from cluster.api.arrow import inputs_of
from cluster.api.bodies import MARKS
from cluster.api.service import Answered, Question
from cluster.data.answers import ARROW, ROWS
from tacl.errors import BadSample, TooLarge
from tests.support.api_scene import Local, headers, scene
from tests.support.budget import budget
from tests.support.data_files import png
from tests.unit.cluster.api.test_api import PEOPLE, Person

World = tuple[TestClient, Local]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    app, service = scene(tmp_path / "home", **PEOPLE)
    with TestClient(app, raise_server_exceptions=False) as http:
        Person(http, "ann").submit("news")
        Person(http, "ann").get("status")
        Person(http, "eve").post("compositions", {"terms": ["+news"]})
        yield http, service


def stream(*arrays: Any, compression: str | None = None) -> bytes:
    """Of one column, a batch for each array."""
    batches = [pa.record_batch([pa.array(one)], names=["x"]) for one in arrays]
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as written:
        for batch in batches:
            written.write_batch(batch)
    return sink.getvalue().to_pybytes()


def post(http: TestClient, body: bytes, who: str = "eve", **query: Any) -> Any:
    sent = headers(who) | {"content-type": ARROW}
    return http.post("/v1/predict/arrow", params=query, content=body, headers=sent)


def told(answer: Any) -> pa.Table:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == ARROW
    return pa.ipc.open_stream(answer.content).read_all()


def test_every_row_is_answered_in_passes(world: World) -> None:
    http, service = world
    texts = [f"text {number}" for number in range(150)]
    found = told(post(http, stream(texts[:70], texts[70:])))
    assert [len(one.inputs) for one in service.questions] == [64, 64, 22]
    assert [text for one in service.questions for text in one.inputs] == texts
    assert [one.told for one in service.questions] == [1] * 3
    assert len({one.model.digest for one in service.questions}) == 1
    assert found.schema.metadata[b"digest"] == service.questions[0].model.digest.encode()
    row = {"task": "news", "label": "a", "probability": 0.75, "belongs": 0.5, "none": True}
    assert found.to_pylist() == [row] * 150


def test_of_all_that_a_pass_tells_no_more_is_kept_than_is_answered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 1,024 rows and 10,000 classes that would be a gigabyte."""

    class Told(list[Any]):
        pass

    http, service = world
    predict, kept = service.predict, list[weakref.ref[Told]]()

    async def watched(question: Question) -> Answered:
        assert not any(one() for one in kept)
        found = await predict(question)
        answers = Told(found.answers)
        kept.append(weakref.ref(answers))
        return replace(found, answers=answers)

    monkeypatch.setattr(service, "predict", watched)
    assert told(post(http, stream(["x"] * 150))).num_rows == 150
    assert len(kept) == 3


def test_within_a_task(world: World) -> None:
    http, service = world
    (row,) = told(post(http, stream(["x"]), task="news")).to_pylist()
    assert service.questions[-1].tasks == ["news"]
    assert (row["task"], row["label"], row["belongs"], row["none"]) == ("news", "a", None, None)
    assert told(post(http, stream(pa.array([], pa.string())))).num_rows == 0


def test_pictures_are_weighed_before_they_are_decoded(world: World) -> None:
    http, service = world
    pictures = [png(shade, size=20) for shade in range(5)]
    assert told(post(http, stream(pictures))).num_rows == 5
    assert (list(service.questions[-1].inputs), service.questions[-1].pixels) == (pictures, 2000)
    body = stream([b"[{," * MARKS])  # what is no JSON is not weighed as JSON
    assert post(http, body).json()["message"].startswith("input 0: not a readable picture")
    much = ["x" * 200_000] * 8
    assert post(http, stream(much)).json()["error"] == "TooLarge"


def test_who_may_ask_whom(world: World) -> None:
    http, service = world
    body = stream(["x"])
    assert post(http, body, "root", user="eve").status_code == 200
    assert post(http, body, "bob", user="eve").json()["message"] == "there is no user eve here"
    assert post(http, body, "mallory").status_code == 401
    assert len(service.questions) == 1


REFUSED = {
    "compressed": stream(["x" * 100], compression="zstd"),
    "compressed otherwise": stream([b"x" * 100], compression="lz4"),
    "dictionaries": stream(pa.array(["x", "y"]).dictionary_encode()),
    "row 1 is null": stream(["x", None]),
    "one column": stream([1, 2]),
    "of list": stream([["x"]]),
    "no column": stream(pa.array([{}]).flatten() or pa.nulls(3)),
    "does not begin": b"",
    "no stream": b"{}",
}


@pytest.mark.parametrize("why", REFUSED)
def test_other_streams_are_refused(world: World, why: str) -> None:
    answer = post(world[0], REFUSED[why])
    assert (answer.status_code, answer.json()["error"]) == (422, "BadSample")
    assert not world[1].questions


def test_rows_are_bounded() -> None:
    assert len(inputs_of(stream(["x"] * ROWS))) == ROWS
    with pytest.raises(TooLarge, match=r"1,025 rows; at most 1,024"):
        inputs_of(stream(["x"] * ROWS, ["y"]))
    one, many = ((rows).to_bytes(8, "little") for rows in (1, 10**9))
    with pytest.raises(TooLarge, match="1,000,000,000 rows"):  # as it says, before any is made
        inputs_of(stream(["text"]).replace(one, many))


def test_batches_and_columns_are_bounded() -> None:
    """Also those without rows, which cost as much to read."""
    assert inputs_of(stream(["x"], *[pa.array([], pa.string())] * (ROWS - 1))) == ["x"]
    with pytest.raises(TooLarge, match="more than 1,024 batches"):
        inputs_of(stream(["x"], *[pa.array([], pa.string())] * ROWS))
    wide = pa.schema([("x" * 1000, pa.string())] * 5000).serialize().to_pybytes()
    with pytest.raises(BadSample) as refused:
        inputs_of(wide)
    assert len(str(refused.value)) < 300


WHOLE = [
    stream(["some", "texts", ""], ["more"]),
    stream([b"bytes", b""]),
    stream(pa.array(["x"] * 9, pa.large_string()), compression="zstd"),
    stream(pa.array(["x", "y"]).dictionary_encode()),
]
CHANGES = st.lists(st.tuples(st.integers(0, 2000), st.binary(min_size=1, max_size=9)), max_size=6)


@settings(max_examples=budget(3000))
@given(whole=st.sampled_from(WHOLE), changes=CHANGES, end=st.integers(0, 2000))
def test_whatever_is_sent_is_rows_or_refused(
    whole: bytes, changes: list[tuple[int, bytes]], end: int
) -> None:
    body = bytearray(whole)
    for place, piece in changes:
        place %= len(body)
        body[place : place + len(piece)] = piece
    body = bytes(body[: max(len(body) - end % len(body), 0)] if end % 2 else body)
    try:
        found = inputs_of(body)
    except (BadSample, TooLarge):
        return
    assert all(isinstance(one, str | bytes) for one in found)
    assert len(found) <= ROWS


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_a_piece_of_nothing_anywhere_is_rows_or_refused(width: int) -> None:
    for place in range(0, len(WHOLE[0]), width):
        for piece in (b"\0" * width, b"\xff" * width):
            body = WHOLE[0][:place] + piece + WHOLE[0][place + width :]
            with contextlib.suppress(BadSample, TooLarge):
                assert len(inputs_of(body)) <= ROWS


@given(st.binary(max_size=300))
def test_noise_is_refused(body: bytes) -> None:
    with pytest.raises(BadSample):
        inputs_of(b"\xff\xff\xff\xff" + body)


def test_the_codec_is_seen_in_every_batch() -> None:
    """As pyarrow writes it, whatever else the batch holds."""
    for rows in (1, 7, ROWS):
        for codec in (None, "lz4", "zstd"):
            body = stream(["some text"] * rows, compression=codec)
            _, *batches = iter(pa.ipc.MessageReader.open_stream(pa.py_buffer(body)))
            seen = [arrow._is_compressed(one.metadata.to_pybytes()) for one in batches]
            assert seen == [codec is not None]
