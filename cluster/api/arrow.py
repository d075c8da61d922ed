"""Predictions for many rows in one request: the body and the answer are Arrow streams."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from cluster.api import limits
from cluster.api.access import Guarded
from cluster.api.dependencies import ApiRequest, ReadRequest
from cluster.api.predict import deadline
from cluster.api.schemas import Name
from cluster.api.service import Question
from cluster.data.answers import ARROW, ROWS, answer_table, likeliest, schema_metadata
from cluster.data.predicting import written
from cluster.domain.api import CoordinatorAPI
from cluster.domain.operations import Belonging, Candidate
from tacl.errors import BadSample, TooLarge

ROUTER = APIRouter(route_class=Guarded, tags=["predictions"])
TEXTS = (pa.string(), pa.large_string())
PICTURES = (pa.binary(), pa.large_binary())
STREAM = {"content": {ARROW: {"schema": {"type": "string", "format": "binary"}}}}
OK: dict[int | str, dict[str, Any]] = {200: STREAM}


@ROUTER.post(
    "/predict/arrow",
    openapi_extra={"requestBody": {"required": True, **STREAM}},
    response_class=Response,
    responses=OK,
)
async def predict_arrow(
    request: Request,
    asked: ReadRequest,
    user: Annotated[Name | None, Query(description="Default: whoever asks.")] = None,
    task: Annotated[
        Name | None, Query(description="Its classes compete. Default: those of all tasks.")
    ] = None,
    seconds: Annotated[float, Query(ge=0.5, le=60, description="Deadline.")] = 60.0,
) -> Response:
    """The likeliest task and class of up to 1,024 rows, from the user's current model. The body is
    an Arrow stream with one column, of strings or of the bytes of picture files, without nulls,
    dictionaries or compression. The answer is an Arrow stream of `task`, `label`, `probability`
    and, if no task is named, `belongs`, the probability that the row is of any task of the model,
    and `none`, whether it is of none. The metadata of its schema has the `digest` of the model and
    that of its `heads`."""
    user, body = asked.caller.user(user), await request.body()
    async with deadline(seconds):
        questions = await run_in_threadpool(_weighed, body)
        model = await asked.ask(CoordinatorAPI.composition, user)
        first, belonging = list[Candidate](), list[Belonging]()
        for inputs, pixels in questions:  # one after the other, so that others get their turns
            tasks = None if task is None else [task]
            question = Question(model, inputs, tasks, pixels=pixels, told=1)
            told = await _answers_of_pass(question, asked, task)
            first, belonging = first + told[0], belonging + told[1]
    return Response(
        written(answer_table(first, belonging, schema_metadata(model))), media_type=ARROW
    )


async def _answers_of_pass(
    question: Question, asked: ApiRequest, task: str | None
) -> tuple[list[Candidate], list[Belonging]]:
    """The likeliest candidate of each row of a pass, and whether the row belongs to a task."""
    found = await asked.service.predict(question)
    return likeliest(found.answers, task), found.belonging


def _weighed(body: bytes) -> list[tuple[list[bytes | str], int]]:
    """The inputs of each pass, at most `limits.INPUTS`, and the number of their pixels."""
    inputs = inputs_of(body)
    limits.weighed(inputs)  # the limits hold for all of them together
    parts = [
        inputs[start : start + limits.INPUTS] for start in range(0, len(inputs), limits.INPUTS)
    ]
    return [(part, limits.weighed(part).pixels) for part in parts]


def inputs_of(body: bytes) -> list[bytes | str]:
    """The values of the one column. Raises BadSample, and TooLarge for more than ROWS rows."""
    try:
        found = [value for batch in _batches(body) for value in batch.column(0).to_pylist()]
    except (pa.ArrowException, EOFError, OSError, ValueError, struct.error) as error:
        why = " ".join(str(error).split())[:200]
        raise BadSample(f"the body is no stream of Arrow: {why}; send {ARROW}") from error
    if None in found:
        raise BadSample(f"row {found.index(None)} is null; leave it out")
    return found


def _batches(body: bytes) -> Iterator[pa.RecordBatch]:
    """The record batches of a stream, each checked before any of it is read."""
    messages = iter(pa.ipc.MessageReader.open_stream(pa.py_buffer(body)))
    first, rows = next(messages, None), 0
    if first is None or first.type != "schema":
        raise BadSample(f"the body does not begin with a schema of Arrow; send {ARROW}")
    schema = pa.ipc.read_schema(first)
    if len(schema) != 1 or schema.field(0).type not in (*TEXTS, *PICTURES):
        few = (schema.field(place) for place in range(min(len(schema), 5)))
        given = ", ".join(f"{field.name} of {field.type}" for field in few)[:200]
        raise BadSample(f"found {given or 'no column'}; send one column, of string or of binary")
    for number, message in enumerate(messages, 1):
        if number > ROWS:
            raise TooLarge(f"more than {ROWS:,} batches; write the rows into fewer")
        if message.type != "record batch" or _is_compressed(message.metadata.to_pybytes()):
            raise BadSample("the stream is compressed or has dictionaries; write it without")
        batch = pa.ipc.read_record_batch(message, schema)
        rows += batch.num_rows
        if rows > ROWS:
            raise TooLarge(f"{rows:,} rows; at most {ROWS:,} at once")
        batch.validate(full=True)
        yield batch


def _is_compressed(message: bytes) -> bool:
    """Whether a record batch names a codec, with which a few bytes may become gigabytes. pyarrow
    does not expose that field of Arrow's Message.fbs."""
    (root,) = struct.unpack_from("<I", message, 0)
    header = _field(message, root, 2)
    if header is None:
        raise ValueError("a message of nothing")
    batch = header + struct.unpack_from("<I", message, header)[0]
    return _field(message, batch, 3) is not None


def _field(message: bytes, table: int, number: int) -> int | None:
    """The offset of a field of a flatbuffers table; None if the field is absent."""
    vtable = table - struct.unpack_from("<i", message, table)[0]
    (size,) = struct.unpack_from("<H", message, vtable)
    place = 4 + 2 * number
    offset = struct.unpack_from("<H", message, vtable + place)[0] if place < size else 0
    return table + offset if offset else None
