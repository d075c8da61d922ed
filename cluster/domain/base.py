"""The frozen messages of TACL: plain data that travels by value, or by digest.

Nothing in `cluster.domain` imports torch, ray or SQL: the control plane and its tests start in
milliseconds.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping, Sized
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, model_validator

from cluster.domain.shown import Shown
from tacl.spec import HeadKind

FIELDS = 100  # at most, in what somebody sent
PAGE = 50  # rows in one answer; the next are requested after the last of these
GPU_PARTS = 8  # of one GPU, which runs may share: eighths add up without rounding
Modality = Literal["image", "text"]
Regime = Literal["linearized", "ordinary"]


def _asked_of_gpus(number: float) -> float:
    """Check how many GPUs, or which part of one, a worker asks for. Raises ValueError."""
    if not (number if number > 1 else number * GPU_PARTS).is_integer():
        raise ValueError("a whole number of GPUs, or eighths of one, such as 0.5 or 0.125")
    return number


def _as_written(number: float) -> int | float:
    """Whole numbers without a point, as they always were: so hashes of options stay the same."""
    return int(number) if number == int(number) else number


Gpus = Annotated[float, PlainSerializer(_as_written)]
AskedGpus = Annotated[Gpus, AfterValidator(_asked_of_gpus)]


def identity(kind: str, parts: Mapping[str, object]) -> str:
    """sha256 hex of a JSON-able value: the id of whatever is determined by exactly these parts."""
    text = json.dumps([kind, parts], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def each_wrong(errors: Iterable[Any]) -> str:
    """The errors that pydantic found, field by field; of a number or a truth value also what was
    given. Texts may be secret or long."""
    return "; ".join(map(_wrong, errors))


def _wrong(one: Any) -> str:
    unknown = one["type"] == "extra_forbidden"
    message = "there is no such field" if unknown else one["msg"]
    given = one.get("input")
    shown = not unknown and isinstance(given, int | float) and -1e15 < given < 1e15
    found = f", not {given}" if shown else ""
    return f"{'.'.join(map(str, one['loc']))}: {message}{found}"


def few_fields(given: object) -> object:
    """Raises ValueError for too many fields. Otherwise each of a million unknown ones would be an
    error of its own, and to report these would take longer than all else that a process does."""
    fields = len(cast("Sized", given)) if issubclass(type(given), dict) else 0
    if fields > FIELDS:
        raise ValueError(f"{fields} fields; at most {FIELDS} are looked at")
    return given


class Sent(BaseModel):
    """A model that strangers fill in."""

    @model_validator(mode="before")
    @classmethod
    def _few(cls, given: object) -> object:
        return few_fields(given)


class Message(Shown):
    """Immutable, strict about unknown fields; infinities and NaN survive as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class Reply(Message):
    """What the coordinator returns: the same model in Python, in `--json` and in the OpenAPI."""

    model_config = ConfigDict(ser_json_inf_nan="null")


def new_id() -> str:
    return uuid.uuid4().hex


class RequestContext(Message):
    """Who makes a request, and under which id.

    `user` sees their own private tasks; None is the cluster itself, or an admin, who sees all. A
    request repeated under its id within a week is carried out once and gets the same answer again.
    `limited`: they may take no more than a user's share of the cluster, and change their own tasks.
    `sender`: who sent it over HTTP, also where that is an admin.
    """

    user: str | None = None
    limited: bool = False
    sender: str | None = None
    request_id: str = Field(default_factory=new_id)


class BlobRef(Message):
    """An immutable Parquet file in the blob store.

    Columns of a data blob: `input` (binary: an image's original bytes, or string: a text) and
    `label` (int64). Columns of a shard blob: `input` and `probe` (bool): the 64 probe rows that
    no step ever trains on.
    """

    digest: str  # sha256 of the bytes
    rows: int


class Base(Message):
    """The one pre-trained base model of a home."""

    spec: str
    digest: str
    modality: Modality
    head_kind: HeadKind

    @property
    def untrained(self) -> str:
        """What a head is called before anything is trained: it is made of the names of the classes,
        or of the means of labelled rows."""
        return "zero-shot" if self.head_kind == "text" else "class means"
