"""Features of a user's model in the format of OpenAI's embeddings API, for its clients."""

from __future__ import annotations

import base64
import struct
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field, StringConstraints

from cluster.api import limits
from cluster.api.access import Guarded
from cluster.api.dependencies import ReadRequest
from cluster.api.predict import deadline
from cluster.api.schemas import Name, Wire
from cluster.api.service import Question
from cluster.data.amounts import TEXT_CHARACTERS
from cluster.domain.api import CoordinatorAPI

ROUTER = APIRouter(route_class=Guarded, tags=["predictions"])
SECONDS = 20.0
Text = Annotated[str, StringConstraints(max_length=TEXT_CHARACTERS)]
Texts = Annotated[list[Text], Field(min_length=1, max_length=limits.INPUTS)]


class Embed(Wire):
    """Texts for one model."""

    model: Name = Field(description="The user whose model it is.", examples=["alice"])
    input: Text | Texts = Field(examples=[["Stocks fell on Monday."]])
    encoding_format: Literal["float", "base64"] = Field(
        default="float", description="`base64`: of float32, little-endian."
    )


class Embedding(Wire):
    object: Literal["embedding"] = "embedding"
    index: int = Field(description="Place of the text in `input`.")
    embedding: list[float] | str


class Tokens(Wire):
    """Always 0, since tokens are not counted: limits are on bytes and requests."""

    prompt_tokens: int = 0
    total_tokens: int = 0


class Embeddings(Wire):
    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str = Field(examples=["alice"])
    usage: Tokens = Tokens()


@ROUTER.post("/embeddings")
async def embeddings(body: Embed, asked: ReadRequest) -> Embeddings:
    """Features f(x) + J(x)τ of each text, under the user's current model."""
    user = asked.caller.user(body.model)
    inputs = [body.input] if isinstance(body.input, str) else body.input
    async with deadline(SECONDS):
        await limits.weigh(inputs)
        model = await asked.ask(CoordinatorAPI.composition, user)
        found = await asked.service.predict(Question(model, inputs, features=True))
    written = _packed if body.encoding_format == "base64" else list[float]
    data = [
        Embedding(index=place, embedding=written(feature_D))
        for place, feature_D in enumerate(found.features or [])
    ]
    return Embeddings(data=data, model=user)


def _packed(feature_D: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(feature_D)}f", *feature_D)).decode()
