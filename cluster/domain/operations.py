"""What the operations of a client answer that are more than a request to the coordinator."""

from __future__ import annotations

from cluster.domain.base import Answer, Modality
from cluster.domain.tasks import Submitted

Ranked = dict[str, list[tuple[str, float]]]  # task -> (class, probability), likeliest first


class StartedCluster(Answer):
    """The cluster of a home; `started` is False where it ran already."""

    home: str
    base: str
    digest: str
    modality: Modality
    generic_rows: int
    address: str
    pid: int
    started: bool


class BackedUp(Answer):
    """A home as it was `at` a moment (seconds since 1970): its tasks and files, of which `copied`
    were not at the target yet, and the files there that nothing refers to any more."""

    target: str
    at: float
    tasks: int
    files: int
    copied: int
    bytes: int  # of those that were copied
    deleted: int


class Restored(Answer):
    """A home again as it was `at` that moment."""

    home: str
    at: float
    tasks: int
    files: int
    bytes: int


class Served(Answer):
    """Where the HTTP API is served, and whether without tokens."""

    url: str
    open_to_all: bool


class Imported(Submitted):
    """A task whose vector came from a checkpoint. `notes`: also what of that was left aside."""


class Answers(Answer):
    """A model's answers, one per input, from the model named by `digest`."""

    user: str
    digest: str
    answers: tuple[Ranked, ...]


class Exported(Answer):
    """A model written for another library. Accuracies are shares of test rows: `exact` of the model
    as it was trained, `materialized` of the files."""

    user: str
    out: str
    format: str
    digest: str
    regime: str
    exact: float
    materialized: float
    per_task: dict[str, dict[str, float]]
    files: tuple[str, ...]
