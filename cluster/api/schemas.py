"""Bodies of HTTP requests and answers, with examples."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from cluster.api.limits import EXPLAINED, INPUTS
from cluster.data.amounts import TEXT_CHARACTERS
from cluster.domain import compositions
from cluster.domain.base import Sent
from cluster.domain.operations import AnswerWay
from cluster.domain.tasks import CLASSES, NAME_CHARACTERS, Options, Reading
from cluster.domain.users import DAYS, Role
from cluster.domain.work import Evaluated

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")]
Terms = Annotated[
    list[Annotated[str, StringConstraints(min_length=1, max_length=200)]],
    Field(min_length=1, max_length=1000, examples=[["+faces", "-0.5*digits@v2"]]),
]
Select = Annotated[
    str | None,
    Field(
        max_length=40,
        description=compositions.CompositionMethod.model_fields["select"].description,
        examples=["blockwise:2"],
    ),
]
Label = Annotated[str, StringConstraints(max_length=NAME_CHARACTERS)]  # of a column, of a class
Template = Annotated[str, StringConstraints(max_length=NAME_CHARACTERS)]
TEMPLATES = 100


class Wire(Sent):
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="null")


class Problem(Wire):
    """Every answer that is not a success: `error` is the name of a class of `tacl.errors`, under
    /v2 followed by the message."""

    error: str = Field(examples=["UnknownTask"])
    message: str = Field(examples=["no task is named flowers; there is faces, digits"])
    request_id: str = Field(examples=["5b0c4d7e9a6f4d0e8a3b2c1d0e9f8a7b"])


def _declared(name: str, **limits: Any) -> Any:
    """A field with the description and the examples that it has in `Reading`."""
    field = Reading.model_fields[name]
    return Field(None, description=field.description, examples=field.examples, **limits)


class Reference(Wire):
    """A data set that is available on the server, under its name there."""

    name: Name = Field(examples=["faces"])
    reference: Name = Field(examples=["faces.parquet"])
    private: bool = False
    again: bool = Field(default=False, description="Also where a task has the same rows.")
    input_column: Label | None = _declared("input_column")
    label_column: Label | None = _declared("label_column")
    classes: tuple[Label, ...] | None = _declared("classes", min_length=1, max_length=CLASSES)
    templates: list[Template] = Field(
        default=[],
        max_length=TEMPLATES,
        description="Prompts with {} for the class name. Default: those of the base.",
        examples=[["a photo of a {}."]],
    )
    options: Options = Field(default=Options(), examples=[{"penalty": "mixed", "seed": 1}])

    @property
    def reading(self) -> Reading:
        return Reading(**{name: getattr(self, name) for name in Reading.model_fields})


Version = Annotated[int, Field(ge=1, lt=2**31)]


class AliasMove(Wire):
    """`expected` is the version that the alias means now; null: none yet; "any": do not check."""

    version: Version = Field(examples=[2])
    expected: Version | Literal["any"] | None = Field(default=None, examples=[1])


Sha256 = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]


class Successor(Wire):
    """A new token of at least 32 random bytes, of which only the sha256 is sent."""

    token_hash: Sha256 = Field(examples=["5b0c4d7e" * 8])


class NewToken(Successor):
    """A new token for a user; it expires after `days`, or never if null."""

    role: Role = "user"
    days: float | None = Field(default=365.0, gt=0, le=DAYS)


class Compose(Wire):
    """Terms are `[+|-][COEFFICIENT*]NAME[@ALIAS|@vN]`."""

    user: Name | None = Field(default=None, description="Default: whoever asks.")
    terms: Terms


class Make(Compose):
    """`ties`, `tsv` and `iso` merge; `grid`, `atlas` and `adamerging` find coefficients."""

    method: compositions.Making = Field(examples=["ties"])
    select: Select = None


class EvaluationRun(Wire):
    """An evaluation; `result` is null until the run is done."""

    run_id: str
    result: Evaluated | None


class Input(Wire):
    """One text, or one picture as base64, whichever the base model of the home reads."""

    text: Annotated[str, StringConstraints(max_length=TEXT_CHARACTERS)] | None = None
    image: str | None = Field(default=None, description="Base64 of a picture file.")

    @model_validator(mode="after")
    def _one(self) -> Input:
        if (self.text is None) == (self.image is None):
            raise ValueError("give either `text` or `image`")
        return self


class Ask(Wire):
    """Several inputs for one model."""

    user: Name | None = Field(default=None, description="Default: whoever asks.")
    inputs: list[Input] = Field(
        min_length=1, max_length=INPUTS, examples=[[{"text": "Stocks fell on Monday."}]]
    )
    tasks: list[Name] | None = Field(
        default=None,
        max_length=1000,
        description="Probabilities within each of these. Default: the classes of all tasks that "
        "the model adds compete.",
    )
    way: AnswerWay = "linearized"
    accept: bool = Field(
        default=False, description="Take the measured accuracy of the materialized model as it is."
    )
    beside_base: bool = Field(default=False, description="Answer for the base model alone too.")
    seconds: float = Field(default=20.0, ge=0.5, le=60, description="Deadline.")


class Explain(Wire):
    """Some inputs for one model; each passes through the base model once for every vector."""

    user: Name | None = Field(default=None, description="Default: whoever asks.")
    inputs: list[Input] = Field(
        min_length=1, max_length=EXPLAINED, examples=[[{"text": "Stocks fell on Monday."}]]
    )
    task: Name | None = Field(
        default=None,
        description="Its classes compete. Default: those of all tasks that the model adds.",
    )
    seconds: float = Field(default=20.0, ge=0.5, le=60, description="Deadline.")
