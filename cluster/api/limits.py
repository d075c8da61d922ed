"""Limits of requests and answers: inputs of too many pixels or characters are refused before they
are decoded (`cluster.data.amounts`)."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from enum import Enum
from typing import TypeVar, cast

from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from cluster.data.amounts import REQUEST, Amount, DecodedSoFar
from cluster.data.validation import checked_text, measured_image
from tacl.errors import BadSample

T = TypeVar("T")

INPUTS = 64
CHANCES = 64_000  # in one answer: to write more as JSON would keep everybody waiting
SMALL = 16 << 10  # bytes of pictures, or characters: checking them costs less than a thread
EXPLAINED = 16  # inputs: each is as many rows as the model has vectors
EXPLAINED_NUMBERS = 250_000  # of one explanation: 25 MB in memory
EXPLAINED_ROWS = 512  # of one explanation, for which others wait; one input alone may have more

_PATH = re.compile(r"(?<![\w.])/(?:[^\s/:@?'\"()]+/)+([^\s/:@?'\"(),;]*)")


def told_of_each(inputs: Sequence[object]) -> int:
    """How many classes of each input an answer has at most."""
    return CHANCES // max(1, min(len(inputs), INPUTS))


def image_of_base64(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:  # binascii's own, or letters beyond ASCII
        raise BadSample(f"{where}: not base64") from error


def weighed(inputs: Sequence[bytes | str]) -> Amount:
    """The decoded size of a request's inputs, which are decoded only when they are used. Raises
    BadSample, TooLarge."""
    spent = DecodedSoFar(REQUEST)
    for place, one in enumerate(inputs):
        if isinstance(one, str):
            checked_text(one, f"input {place}", spent)
        else:
            measured_image(one, f"input {place}", spent)
    return spent.total


async def weigh(inputs: Sequence[bytes | str]) -> Amount:
    """As `weighed`, with large inputs checked in a thread, so that other requests do not wait."""
    if sum(map(len, inputs)) <= SMALL:
        return weighed(inputs)
    return await run_in_threadpool(weighed, inputs)


def without_paths(found: T) -> T:
    """`found` with every absolute path shortened to its last name: answers must reveal no more."""
    return cast(T, _shortened(found))


def _shortened(found: object) -> object:
    if isinstance(found, str) and not isinstance(found, Enum):
        return _PATH.sub(r"…/\1", found)
    if isinstance(found, BaseModel):
        return found.model_copy(update={name: _shortened(value) for name, value in found})
    if isinstance(found, dict):
        return {key: _shortened(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return type(found)(map(_shortened, found))
    return found
