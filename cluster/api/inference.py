"""The Open Inference Protocol, version 2, of KServe and Triton; each user's model is one model.

Tensors are JSON; the extensions for binary tensors and for shared memory are not supported.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BeforeValidator, Field, model_validator

import tacl
from cluster.api import health
from cluster.api.access import Guarded
from cluster.api.dependencies import ReadRequest
from cluster.api.limits import INPUTS, image_of_base64
from cluster.api.predict import answered
from cluster.api.schemas import Ask, Name, Wire
from cluster.domain.api import CoordinatorAPI
from cluster.domain.base import Modality, few_fields
from tacl.errors import BadConfig, TooLarge

HEALTH = APIRouter(tags=["open inference protocol"])
# Triton's clients do not declare the content type of their JSON.
ROUTER = APIRouter(route_class=Guarded, tags=["open inference protocol"], strict_content_type=False)
PLATFORM = "tacl"

Parameters = Annotated[dict[str, str | int | float | bool], BeforeValidator(few_fields)]
VALUES = 1000  # more are refused when the body is parsed; more than INPUTS by the route
OutputName = Literal["task", "label", "probability"]
Datatype = Literal["BYTES", "FP32"]
Size = Annotated[int, Field(ge=-1)]


def _few(given: object) -> object:
    """Limit the values of all rows together. The schema does not: its limits would hold for each
    list by itself. Raises ValueError."""
    rows = given if isinstance(given, list) else []
    if sum(len(row) if isinstance(row, list) else 1 for row in rows) > VALUES:
        raise ValueError(f"more than {VALUES} values")
    return given


class Described(Wire):
    """Name, type and shape of a tensor; -1: any number."""

    name: str = Field(examples=["text"])
    datatype: Datatype
    shape: list[Size] = Field(examples=[[-1]])


class InferInput(Wire):
    """Texts, or pictures as base64, one after the other."""

    name: Modality = Field(description="What the base of the home reads.", examples=["text"])
    shape: list[Annotated[int, Field(ge=1)]] = Field(min_length=1, max_length=2, examples=[[1]])
    datatype: Literal["BYTES"]
    parameters: Parameters = {}
    data: Annotated[list[str] | list[list[str]], BeforeValidator(_few)] = Field(
        examples=[["Stocks fell on Monday."]]
    )

    @model_validator(mode="after")
    def _of_its_shape(self) -> InferInput:
        if (found := len(self.values)) != math.prod(self.shape):
            raise ValueError(f"{found} values, but the shape {self.shape}")
        return self

    @property
    def values(self) -> list[str]:
        rows = ([row] if isinstance(row, str) else row for row in self.data)
        return [value for row in rows for value in row]


class RequestedOutput(Wire):
    name: OutputName
    parameters: Parameters = {}


class InferRequest(Wire):
    """Parameters are for extensions and ignored. KServe's client repeats the model's name in
    `model_name`."""

    model_name: Name | None = Field(default=None, description="As in the path.")
    id: str | None = Field(default=None, max_length=200)
    parameters: Parameters = {}
    inputs: list[InferInput] = Field(min_length=1, max_length=1)
    outputs: list[RequestedOutput] | None = Field(default=None, max_length=3)


class InferOutput(Described):
    data: list[str] | list[float]


class InferResponse(Wire):
    """The likeliest task of each input, its class, and the probability of both."""

    model_name: str = Field(examples=["alice"])
    model_version: str = Field(description="Digest of the model that answered.")
    id: str | None = None
    outputs: list[InferOutput]


class ServerLive(Wire):
    live: bool = True


class ServerReady(Wire):
    ready: bool


class ModelReady(Wire):
    name: str
    ready: bool


class ModelMetadata(Wire):
    name: str = Field(examples=["alice"])
    versions: list[str] = Field(description="Digest of the model as it is now.")
    platform: str
    inputs: list[Described]
    outputs: list[Described]


class ServerMetadata(Wire):
    name: str
    version: str
    extensions: list[str] = []


OUTPUTS: dict[OutputName, Datatype] = {"task": "BYTES", "label": "BYTES", "probability": "FP32"}


@HEALTH.get("/health/live")
async def live() -> ServerLive:
    """This process answers."""
    return ServerLive()


@HEALTH.get(
    "/health/ready",
    response_model=ServerReady,
    responses={503: {"model": ServerReady, "description": "A part does not answer."}},
)
async def server_ready(request: Request) -> JSONResponse:
    """Whether coordinator, predictors and the reading of uploads answer; 503 when one does not."""
    ready = (await health.found(request)).status == "ready"
    return JSONResponse(ServerReady(ready=ready).model_dump(), 200 if ready else 503)


@ROUTER.get("")
async def server(_: ReadRequest) -> ServerMetadata:
    """Name and version of this server."""
    return ServerMetadata(name=PLATFORM, version=tacl.__version__)


@ROUTER.get("/models/{user}")
async def metadata(user: Name, asked: ReadRequest) -> ModelMetadata:
    """Name, version, inputs and outputs of a user's model."""
    user = asked.caller.user(user)
    model = await asked.ask(CoordinatorAPI.composition, user)
    status = await asked.ask(CoordinatorAPI.status)
    return ModelMetadata(
        name=user,
        versions=[model.digest],
        platform=PLATFORM,
        inputs=[Described(name=status.base.modality, datatype="BYTES", shape=[-1])],
        outputs=[Described(name=one, datatype=of, shape=[-1]) for one, of in OUTPUTS.items()],
    )


@ROUTER.get("/models/{user}/ready")
async def model_ready(user: Name, asked: ReadRequest) -> ModelReady:
    """Whether the user has a model."""
    await asked.ask(CoordinatorAPI.composition, user := asked.caller.user(user))
    return ModelReady(name=user, ready=True)


@ROUTER.post("/models/{user}/infer", response_model_exclude_none=True)
async def infer(user: Name, body: InferRequest, asked: ReadRequest) -> InferResponse:
    """The likeliest task and class of each input, as in `/v1/predict`."""
    if body.model_name not in (None, user):
        raise BadConfig(f"the body asks model {body.model_name}, the path {user}; name one")
    (given,) = body.inputs
    if (count := len(given.values)) > INPUTS:
        raise TooLarge(f"{count} inputs; at most {INPUTS} at once")
    inputs = [
        value if given.name == "text" else image_of_base64(value, f"input {place}")
        for place, value in enumerate(given.values)
    ]
    found = await answered(Ask.model_construct(user=user), inputs, asked)
    chosen = {one.name for one in body.outputs or ()} or OUTPUTS.keys()
    data = {one: [getattr(candidate, one) for candidate in found.best] for one in chosen}
    outputs = [
        InferOutput(name=one, datatype=of, shape=[count], data=data[one])
        for one, of in OUTPUTS.items()
        if one in chosen
    ]
    return InferResponse(
        model_name=found.user, model_version=found.digest, id=body.id, outputs=outputs
    )
