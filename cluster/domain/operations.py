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


class Served(Answer):
    """Where the HTTP API is served, and whether without tokens."""

    url: str
    open_to_all: bool


class Imported(Submitted):
    """A task whose vector came from a checkpoint. `notes`: what was left aside."""

    notes: tuple[str, ...]


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
