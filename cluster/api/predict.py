"""Predictions and explanations for several texts or pictures at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, File, Form, UploadFile

from cluster.api import limits
from cluster.api.access import Guarded
from cluster.api.dependencies import ApiRequest, ReadRequest
from cluster.api.schemas import Ask, Explain, Input, Name
from cluster.api.service import Question
from cluster.data.amounts import PICTURE_BYTES
from cluster.domain.api import CoordinatorAPI
from cluster.domain.base import identity
from cluster.domain.compositions import Composition
from cluster.domain.explanations import Explanations
from cluster.domain.operations import Answers
from cluster.domain.work import TaskAccuracy
from tacl.errors import Inexact, TooLarge, TooLate

ROUTER = APIRouter(route_class=Guarded, tags=["predictions"])


@ROUTER.post("/predict")
async def predict(body: Ask, asked: ReadRequest) -> Answers:
    """The likeliest task and class of each input, and the probabilities of all classes, from the
    user's current model. If tasks are named, the probabilities of their classes within each task.
    Of more than 64,000 probabilities the least likely of each task are left out; `more_classes`
    counts them."""
    inputs = [_raw(one, place) for place, one in enumerate(body.inputs)]
    return await answered(body, inputs, asked)


@ROUTER.post("/predict/files")
async def predict_files(
    asked: ReadRequest,
    files: Annotated[list[UploadFile], File(description="Picture files.")],
    user: Annotated[Name | None, Form()] = None,
) -> Answers:
    """As `/v1/predict`, for picture files."""
    if len(files) > limits.INPUTS:
        raise TooLarge(f"{len(files)} files; at most {limits.INPUTS} at once")
    inputs = [await file.read(PICTURE_BYTES + 1) for file in files]
    return await answered(Ask.model_construct(user=user), inputs, asked)


@ROUTER.post("/explain")
async def explain(body: Explain, asked: ReadRequest) -> Explanations:
    """What each vector of the user's model adds to the features and to every logit of each answer,
    and the answer with that vector left out."""
    inputs = [_raw(one, place) for place, one in enumerate(body.inputs)]
    user, tasks = asked.caller.user(body.user), None if body.task is None else [body.task]
    async with deadline(body.seconds):
        weight = await limits.weigh(inputs)
        model = await asked.ask(CoordinatorAPI.composition, user)
        question = Question(model, inputs, tasks, explain=True, pixels=weight.pixels)
        if len(inputs) > 1 and question.rows > limits.EXPLAINED_ROWS:
            raise TooLarge(
                f"{len(inputs)} inputs for each of {len(model.terms)} vectors; at most "
                f"{limits.EXPLAINED_ROWS} passes at once; send fewer inputs"
            )
        found = await asked.service.predict(question)
    return found.explained(question)


def _raw(one: Input, place: int) -> bytes | str:
    if one.text is not None:
        return one.text
    return limits.image_of_base64(one.image or "", f"input {place}")


async def answered(body: Ask, inputs: Sequence[bytes | str], asked: ApiRequest) -> Answers:
    """The answers of the user's model to inputs that were not checked yet."""
    user, started, measured = asked.caller.user(body.user), time.perf_counter(), None
    async with deadline(body.seconds):
        weight = await limits.weigh(inputs)
        model = await asked.ask(CoordinatorAPI.composition, user)
        if body.way != "linearized":
            measured = await _measured(asked, user, model, body)
        question = Question(model, inputs, body.tasks, body.way, body.beside_base)
        question = replace(question, pixels=weight.pixels, told=limits.told_of_each(inputs))
        found = await asked.service.predict(question)
    return found.to_reply(question, time.perf_counter() - started, measured)


@asynccontextmanager
async def deadline(seconds: float) -> AsyncIterator[None]:
    """Limit the time of a block. Raises TooLate after `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise TooLate(f"no answer within {seconds:g} s; ask for less or wait longer") from error


async def _measured(
    asked: ApiRequest, user: str, model: Composition, body: Ask
) -> dict[str, TaskAccuracy]:
    """The accuracies of the materialized model by task, which must be measured, shown and accepted
    before it may answer. The key is that of this user's model with its current heads: a repeated
    request only polls, so that a failed measurement is reported and not started again each time.
    Raises Inexact if they are not measured yet, or not accepted."""
    answering = identity("materialized", model.model_dump(mode="json"))
    asked = replace(asked, key=f"evaluate {user} {answering}")
    run = await asked.ask(CoordinatorAPI.evaluate, user, True, False, [])
    result = await asked.ask_without_paths(CoordinatorAPI.evaluation, run.run_id)
    if result is None:
        raise Inexact(f"the materialized model of {user} is being measured; ask again in a while")
    if not body.accept:
        lost = {
            task: f"{row.composed:.3f} exactly, {row.materialized:.3f} materialized"
            for task, row in result.per_task.items()
        }
        raise Inexact(f"the materialized model is an approximation: {lost}; send `accept: true`")
    return result.per_task
