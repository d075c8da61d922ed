"""Answers of those operations of a client that are more than a request to the coordinator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from cluster.domain.base import Modality, Reply
from cluster.domain.receipts import Submitted
from cluster.domain.users import TokenStatus, Usage
from cluster.domain.work import TaskAccuracy

# As a list: tools that read OpenAPI disagree on how a tuple is written there.
PAIR = {
    "type": "array",
    "items": {"anyOf": [{"type": "string"}, {"type": "number"}]},
    "minItems": 2,
    "maxItems": 2,
}
Chance = Annotated[tuple[str, float], WithJsonSchema(PAIR)]
# task -> (class, probability), likeliest first. If tasks were named, the probabilities of each sum
# to 1; otherwise those of all tasks together.
Ranked = dict[str, list[Chance]]
AnswerWay = Literal["linearized", "materialized"]  # as trained, or as one ordinary model


class StartedCluster(Reply):
    """The cluster of a home; `started` is False if it ran already."""

    home: str
    base: str
    digest: str
    modality: Modality
    generic_rows: int
    address: str
    pid: int
    started: bool


class BackedUp(Reply):
    """A home as it was at the time `at` (seconds since 1970): its tasks and files, of which
    `copied` were not at the target yet; `deleted`: files there that nothing refers to any more."""

    target: str
    at: float
    tasks: int
    files: int
    copied: int
    bytes: int  # of those that were copied
    deleted: int


class Restored(Reply):
    """A home, restored as it was at the time `at`."""

    home: str
    at: float
    tasks: int
    files: int
    bytes: int


class Served(Reply):
    """Where the HTTP API is served, and whether without tokens."""

    url: str
    open_to_all: bool


class Imported(Submitted):
    """A task whose vector came from a checkpoint. `notes`: also what of that was left aside."""


class ReadyImport(Imported):
    """An import whose vector exists: `metrics` on its validation rows, and names of parameters that
    the checkpoint changes and vectors do not."""

    metrics: dict[str, float]
    outside: tuple[str, ...]


class WrittenConfig(Reply):
    """The file of settings that `tacl up` uses unless told otherwise."""

    file: str


class Stopped(Reply):
    """Whether a cluster or a server was stopped: False if none was running."""

    stopped: bool


class UserList(Reply):
    """A page of users who have tokens or use the cluster."""

    tokens: tuple[TokenStatus, ...]
    usage: tuple[Usage, ...]


class Candidate(Reply):
    """One of the classes of all tasks: `probability` is P(task | x) P(label | x, task)."""

    task: str = Field(examples=["faces"])
    label: str = Field(examples=["happy"])
    probability: float = Field(examples=[0.93])

    @staticmethod
    def first(task: str, ranked: Sequence[Chance]) -> Candidate:
        """The likeliest class of a task."""
        label, probability = ranked[0]
        return Candidate(task=task, label=label, probability=probability)


def candidates(answer: Ranked) -> list[Candidate]:
    """The classes of an answer for which no task was named, likeliest first."""
    found = [
        Candidate(task=task, label=label, probability=probability)
        for task, ranked in answer.items()
        for label, probability in ranked
    ]
    return sorted(found, key=lambda one: -one.probability)


def best(answers: Iterable[Ranked], tasks: Sequence[str] | None) -> tuple[Candidate, ...]:
    """The likeliest class of each answer; none if tasks were named."""
    return () if tasks else tuple(map(_likeliest, answers))


def _likeliest(answer: Ranked) -> Candidate:
    task = max(answer, key=lambda task: answer[task][0][1])
    return Candidate.first(task, answer[task])


class Belonging(Reply):
    """Whether an input is of any task of a model. `none`: of none of these, as it is unlike the
    inputs of every one of them: `probability`, and how near it is to one of their classes, are
    together less than for 19 of 20 validation rows of these tasks. So 1 in 20 of their own is found
    to be of none too. `probability`, of these tasks beside all that the home has seen, is near 1
    for much that the home has not seen."""

    probability: float = Field(examples=[0.97])
    none: bool


class Answers(Reply):
    """A model's answers, one per input: {task: [[class, probability], ...]}, likeliest first. If
    tasks were named, the probabilities of each sum to 1; otherwise those of all tasks together."""

    shown = ("user", "likeliest", "belonging")

    user: str = Field(examples=["alice"])
    digest: str = Field(description="Of the model that answered.", examples=["4be1b5f1"])
    way: AnswerWay = "linearized"
    best: tuple[Candidate, ...] = Field(
        default=(), description="For every input the likeliest, where no task was named."
    )
    answers: tuple[Ranked, ...] = Field(
        examples=[[{"faces": [["happy", 0.93], ["sad", 0.07]]}]],
    )
    belonging: tuple[Belonging, ...] = Field(
        default=(),
        description="Whether each input is of any task of the model; where no task was named and "
        "the heads are fitted.",
    )
    base: tuple[Ranked, ...] | None = Field(
        default=None, description="The answers of the base model alone, where they were asked for."
    )
    more_classes: int = Field(
        default=0,
        exclude_if=lambda classes: not classes,
        description="Classes that each answer leaves out, where those of all inputs together would "
        "be more than 64,000: the least likely of each task. Ask for fewer inputs at once.",
    )
    measured: dict[str, TaskAccuracy] | None = Field(
        default=None, description="Accuracies of the materialized model, where that answered."
    )
    seconds: float = Field(examples=[0.031])

    @property
    def likeliest(self) -> tuple[Candidate, ...]:
        """`best`; if tasks were named, the likeliest class of each task."""
        tasks = (task for answer in self.answers for task in answer.items())
        return self.best or tuple(Candidate.first(*task) for task in tasks)


class Exported(Reply):
    """A model written for another library. Accuracies are shares of test rows: `exact` of the model
    as it was trained, `materialized` of the files."""

    user: str
    out: str
    format: str
    digest: str
    regime: str
    exact: float
    materialized: float
    per_task: dict[str, TaskAccuracy]
    files: tuple[str, ...]


class ExportedVector(Reply):
    """A vector's file and its head, in a folder, or in a repository of a hub at their commit."""

    task: str
    version: int
    digest: str
    out: str
    files: tuple[str, ...]
