"""Where a model lies: a direction from theta0, and what going along it does to rows of a task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from jobs.experiments.cache import Cell, Made, key_of
from jobs.experiments.context import BATCH, Bench
from jobs.experiments.cost import Cost
from tacl.backbone import Item
from tacl.evaluation.tangents import cached_tangents
from tacl.vectors import params
from tacl.vectors.params import Params
from tacl.vectors.vector import Regime, TaskVector


class Direction(Protocol):
    """`key` stands for all that decided it; `regime` says in which model it is evaluated."""

    @property
    def key(self) -> str: ...
    @property
    def regime(self) -> Regime: ...
    def tau(self) -> Params: ...


@dataclass(frozen=True)
class Kept:
    """A direction in a cell: a merge, or joint training."""

    cell: Cell
    regime: Regime

    @property
    def key(self) -> str:
        return self.cell.key

    def tau(self) -> Params:
        return self.cell.tensors()


@dataclass(frozen=True)
class Vector(Kept):
    """The vector of a task. `cost` is that of its training, `later` that of its refreshes;
    `refresh` is the last of them, accepted or not, `first` the vector before all of them."""

    task: str
    cost: Cost
    later: Cost
    refresh: Cell | None = None
    first: Cell | None = None


def task_vectors(bench: Bench, vectors: Iterable[Vector]) -> list[TaskVector]:
    base = bench.backbone.digest
    return [TaskVector.of_params(v.task, base, v.regime, v.tau()) for v in vectors]


@dataclass(frozen=True)
class Sum:
    """sum_t c_t tau_t as one direction: evaluated once instead of term by term."""

    terms: Sequence[tuple[float, Direction]]

    @property
    def key(self) -> str:
        if len(self.terms) == 1 and self.terms[0][0] == 1.0:
            return self.terms[0][1].key
        return key_of("sum", {"terms": [[c, direction.key] for c, direction in self.terms]})

    @property
    def regime(self) -> Regime:
        return self.terms[0][1].regime

    def tau(self) -> Params:
        return params.combine([(c, direction.tau()) for c, direction in self.terms])


def tangent(bench: Bench, direction: Direction, task: str, part: str) -> Tensor:
    """J(x) tau on a part of a task's rows, [N, D]: one dual pass, kept."""

    def make() -> Made:
        items, taus = bench.rows(task).items(part), {"tau": direction.tau()}
        cached = cached_tangents(bench.base.module, bench.backbone, items, taus, BATCH)
        return {}, {"tangent": cached.tangents["tau"]}

    what, data = f"{direction.key[:8]} on {part} of {task}", bench.content(task, part)
    cell = bench.cell("tangent", make, what, data=data, tau=direction.key)
    return cell.tensors()["tangent"]


def features(
    bench: Bench, direction: Direction, task: str, part: str, coefficient: float = 1.0
) -> Tensor:
    """Of the model at `coefficient` times the direction, [N, D].

    f(x; theta0) + c J(x) tau, by addition of what is kept; or f(x; theta0 + c tau), by a pass.
    """
    if direction.regime == "linearized":
        plain_ND = bench.features(task, part)
        return plain_ND + coefficient * tangent(bench, direction, task, part)
    moved = direction if coefficient == 1.0 else Sum([(coefficient, direction)])
    return bench.features(task, part, moved.tau, moved.key)


def features_of(bench: Bench, regime: Regime, tau: Params, items: Sequence[Item]) -> Tensor:
    """Of any inputs by the model at tau, which is nobody's to keep, [N, D]."""
    if regime == "ordinary":
        return bench.base.encoded(items, tau)
    module = bench.base.module
    cached = cached_tangents(module, bench.backbone, items, {"tau": tau}, BATCH)
    return cached.linearized({"tau": 1.0})
