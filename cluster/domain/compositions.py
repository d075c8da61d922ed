"""A user's model: what is requested, what is pinned, and what making it did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import ConfigDict, Field

from cluster.domain.base import BlobRef, Message
from cluster.domain.tasks import VectorRef
from tacl.compose.terms import Merge, Term

Fitting = Literal["grid", "atlas"]  # can learn from labelled rows that are given
Adapting = Literal["atlas", "adamerging"]  # can learn from unlabelled inputs that are given
Making = Literal[Fitting, Adapting, Merge]
Method = Literal["sum", Making]


class RecipeTerm(Message):
    """One vector of a composition, pinned.

    `by_block`: coefficients that were learned, instead of the one; of other blocks 0.
    """

    coefficient: float
    vector: VectorRef
    by_block: dict[str, float] | None = None

    def __str__(self) -> str:
        """As a person writes it, with its version."""
        return str(Term(self.coefficient, self.vector.task, self.vector.version))


class Merged(Message):
    """One tau instead of a sum, as TIES, TSV-M and Iso-C make it: a vector's file."""

    digest: str  # content digest of the vector
    blob: str


# Not a Message, which takes three times the memory: one is kept for every task of every fit.
@dataclass(frozen=True, slots=True)
class FittedHead:
    """The heads of one task under one vector: the blobs of that fitted under sums or under the
    model, and of that fitted at theta0; and the share of its validation rows that each answers
    right when the task is named."""

    __pydantic_config__: ClassVar[ConfigDict] = Message.model_config

    task: str
    vector: str  # digest
    head: str
    frozen: str
    accuracy: float
    frozen_accuracy: float


class Fitted(Message):
    """Heads that answer together, and the blob of what tells inputs of none of their tasks (None in
    a fit by an earlier version)."""

    heads: tuple[FittedHead, ...]
    novelty: str | None = None
    metrics: dict[str, float]  # validation rows: known, unknown, frozen_known ...; rows, seconds


class Target(Message):
    """A task without a vector that a composition was fitted to, its head, and the labelled rows
    that were not learned from, if there are any."""

    name: str
    classes: tuple[str, ...]
    head_blob: str
    held_out: BlobRef | None = None


class Composition(Message):
    """A user's model: a recipe of pinned vectors. Its digest names it.

    With `merged`, the terms say what that was made of, with the signs and coefficients that went
    in. `fitted`: heads that were fitted under this very model, which is then no sum. `novelty`: the
    blob of what tells inputs of none of its tasks, if its heads are fitted. `private_to`: by task,
    the owners of private tasks that are not the user's; only in the answer to whoever composes it.
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
    """A few labelled rows of a task that has no vector; `held_out`: the rest, which judge it."""

    classes: tuple[str, ...]
    shots: BlobRef
    held_out: BlobRef | None = None


class Adapt(Message):
    """Unlabelled inputs (a shard blob): of a new task with these classes or, without classes, of
    any task of the recipe."""

    inputs: BlobRef
    classes: tuple[str, ...] = ()


class CompositionMethod(Message):
    """How to make a composition that is more than a sum (`cluster.domain.methods`)."""

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
        """The rows that were given for it, held-out ones included."""
        labelled = [self.fit.shots, self.fit.held_out] if self.fit else []
        return [*filter(None, [*labelled, self.adapt and self.adapt.inputs])]


_SHOTS: Any = Field(
    ge=1, le=10_000, description="Rows of each class to fit to; others are held out."
)
Shots = Annotated[int, _SHOTS]


class LearnedFrom(Message):
    """What a composition may learn from beside the rows of its recipe's tasks, and where these data
    are. It is declared here only, as what is said about rows is in `Reading`."""

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
    """Accuracies in [0, 1] on `rows` rows of a task; `before`: of the recipe as a plain sum."""

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
