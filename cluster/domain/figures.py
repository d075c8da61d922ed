"""Figures of a running cluster; docs/metrics.md has the names under which they are reported."""

from __future__ import annotations

from typing import Literal

from cluster.domain.base import Reply
from cluster.domain.status import RunKind, RunState


class Liveness(Reply):
    """This process answers."""

    status: Literal["ok"] = "ok"


class Readiness(Reply):
    """Which parts of a server answer now; it is ready when all of them do."""

    status: Literal["ready", "unready"]
    coordinator: bool
    predictors: bool
    uploads: bool


class RunCount(Reply):
    """The number of owed or failed runs of one kind in one state. Failed evaluations and
    compositions are not counted."""

    kind: RunKind
    state: RunState
    runs: int


class Spent(Reply):
    """How often something was done since its process began, and the seconds that it took in all."""

    times: int
    seconds: float


class CoordinatorFigures(Reply):
    """`lock`: waiting while other requests are carried out; `steps`: of trainings; `trouble`:
    whether something is tried again and again, as on a full disk."""

    runs: tuple[RunCount, ...]
    lock: Spent
    reads: Spent
    writes: Spent
    steps: int
    trouble: bool


class Kept(Reply):
    """What a predictor has in memory: vectors, models that are kept composed, and bytes of both and
    of heads. A pass that needed a vector or a head found it there (`hits`) or read it."""

    vectors: int
    models: int
    bytes: int
    hits: int
    misses: int


class PredictorFigures(Kept):
    """The figures of one predictor."""

    predictor: str
    passes: int
    questions: int


class StoreFigures(Reply):
    blobs: int
    bytes: int
