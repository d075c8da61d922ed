"""A user's model: what is asked for, what is pinned, and what making it did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import ConfigDict, Field

from cluster.domain.base import BlobRef, Message
from cluster.domain.tasks import VectorRef
from tacl.compose.terms import Merge, Term

Fitting = Literal["grid", "atlas"]  # learn from labelled rows, beside those of the recipe's tasks
Adapting = Literal["atlas", "adamerging"]  # from unlabelled inputs
Making = Literal[Fitting, Adapting, Merge]
Method = Literal["sum", Making]


class RecipeTerm(Message):
    """One vector of a composition, pinned.

    `by_block`: coefficients that were learned, in the place of the one; of other blocks 0.
    """

    coefficient: float
    vector: VectorRef
    by_block: dict[str, float] | None = None

    def __str__(self) -> str:
        """As a person writes it, with its version."""
        return str(Term(self.coefficient, self.vector.task, self.vector.version))


class Merged(Message):
    """One tau in the place of a sum, as TIES, TSV-M and Iso-C make it: a vector's file."""

    digest: str  # content digest of the vector
    blob: str


# No Message, which takes three times the memory: one is kept for every task of every fit.
@dataclass(frozen=True, slots=True)
class FittedHead:
    """Of one task under one vector: the blobs of its heads, under sums or under the model and at
    theta0, and how many of its validation rows they answer right when the task is named."""

    __pydantic_config__: ClassVar[ConfigDict] = Message.model_config

    task: str
    vector: str  # digest
    head: str
    frozen: str
    accuracy: float
    frozen_accuracy: float


class Fitted(Message):
    """Heads that answer together, and the blob of what tells inputs of none of their tasks (of a
    fit by an earlier version there is none)."""

    heads: tuple[FittedHead, ...]
    novelty: str | None = None
    metrics: dict[str, float]  # validation rows: known, unknown, frozen_known ...; rows, seconds


class Target(Message):
    """A task without a vector that a composition was fitted to, its head, and the labelled rows
    that it did not learn from, if there are any."""

    name: str
    classes: tuple[str, ...]
    head_blob: str
    held_out: BlobRef | None = None


class Composition(Message):
    """A user's model: a recipe of pinned vectors. Its digest names it.

    With `merged`, the terms say what that was made of, signs and coefficients as they went in.
    `fitted`: heads that were fitted under this very model, which is no sum. `novelty`: the blob of
    what tells inputs of none of its tasks, where its heads are fitted. `private_to`: by task, whose
    private task it is, of those that are not the user's; told to whoever composes it.
    """

    shown = ("user", "method", "terms", "private_to")

    digest: str
    user: str
    method: Method = "sum"
    terms: tuple[RecipeTerm, ...]
    merged: Merged | None = None
    target: Target | None = None
    fitted: tuple[FittedHead, ...] = ()
    novelty: str | None = None
    private_to: dict[str, str] = {}


class Fit(Message):
    """Few labelled rows of a task that has no vector; what is left of them judges."""

    classes: tuple[str, ...]
    shots: BlobRef
    held_out: BlobRef | None = None


class Adapt(Message):
    """Unlabelled inputs (a shard blob): of a new task with these classes; without classes, of any
    task of the recipe."""

    inputs: BlobRef
    classes: tuple[str, ...] = ()


class CompositionMethod(Message):
    """How a composition is made that is more than a sum (`cluster.domain.methods`)."""

    method: Method = Field(
        default="sum",
        description="How the vectors become one model; all but sum are computed on the cluster.",
    )
    select: str | None = Field(
        default=None,
        description="For atlas: learn coefficients of B vectors per block (blockwise:B), of B "
        "whole vectors (whole:B), or of B at random (random:B). Default: of all, per block.",
    )
    fit: Fit | None = None
    adapt: Adapt | None = None

    @property
    def rows(self) -> list[BlobRef]:
        """Which it is to learn from."""
        labelled = [self.fit.shots, self.fit.held_out] if self.fit else []
        return [*filter(None, [*labelled, self.adapt and self.adapt.inputs])]


_SHOTS: Any = Field(
    ge=1, le=10_000, description="Rows of each class to fit to; others are held out."
)
Shots = Annotated[int, _SHOTS]


class LearnedFrom(Message):
    """What a composition may learn from beside the rows of its recipe's tasks, and where these lie:
    the one declaration of it, as `Reading` is of what is said of them."""

    fit: str | None = Field(
        default=None,
        description=f"For {' and '.join(get_args(Fitting))}: labelled rows of a new task to fit "
        "to.",
    )
    shots: Annotated[int | None, _SHOTS] = None
    adapt: str | None = Field(
        default=None,
        description=f"For {' and '.join(get_args(Adapting))}: unlabelled inputs to adapt to, of "
        "the recipe's tasks or, with names of classes, of a new one.",
    )


class MeasuredAgain(Message):
    """tau_jp of a vector with the coefficients it has in a composition."""

    vector: str  # TASK@vN
    on: str  # whose probe
    tau_jp: float  # mean over the probe of |J Lambda tau|_2, raw
    standard_error: float
    rows: int
    relative: float | None = None  # to what the task's own vector does there
    logits: float | None = None  # the change of the logits, relative to that by the own vector


JudgedOn = Literal[
    "validation rows",
    "the validation rows it learned from",
    "rows held out",
    "the shots themselves",
    "nothing",
]


class JudgedTask(Message):
    """Accuracies in [0, 1] of so many rows of a task; `before`: of the recipe as a plain sum."""

    zero_shot: float
    before: float
    after: float
    rows: float


class Report(Message):
    """What making a composition did; accuracies by task."""

    accuracies: dict[str, JudgedTask]
    judged_on: JudgedOn
    tau_jp: tuple[MeasuredAgain, ...] = ()
    figures: dict[str, float] = {}  # steps, the loss at both ends, the coefficient of a grid ...
    seconds: float
