"""What a table must say of itself for `runner.py` to make it: its columns and its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.experiments.context import Bench
from jobs.experiments.cost import Cost, together
from jobs.experiments.directions import Vector
from jobs.experiments.suites import Suite
from jobs.experiments.table import Column, Entry, Numbers, Table

Train = Callable[[Bench, str], Vector]


@dataclass(frozen=True)
class Method:
    """A row: how the vector of each task is trained, and what each step sees of the data.

    `train` None: no vector is needed, or not one for each task of the pool.
    """

    name: str
    train: Train | None
    saw_training: str
    saw_merging: str

    def vectors(self, bench: Bench) -> dict[str, Vector]:
        """As first trained."""
        train = self.train
        return {task: train(bench, task) for task in bench.pool} if train else {}

    def entry(
        self,
        bench: Bench,
        numbers: Numbers,
        tasks: dict[str, Numbers] | None = None,
        more: dict[str, Any] | None = None,
        training: Sequence[Cost] = (),
        merging: Sequence[Cost] = (),
    ) -> Entry:
        """What it came to under the seed of the bench."""
        costs = together(training), together(merging)
        saw = self.saw_training, self.saw_merging
        return Entry(self.name, bench.seed, *saw, numbers, tasks or {}, more or {}, *costs)


def nothing(table: Table) -> None:
    """For tables whose entries do not depend on each other."""


@dataclass(frozen=True)
class Spec:
    """`methods` are made in this order, the most telling first, unless others are asked for.

    `finish` fills what needs several entries, each time before the table is written. `ahead`: its
    trainings are those of the whole pool, and can be done side by side. `targets`: it is about the
    suite's tasks outside the pool too.
    """

    name: str
    about: str
    columns: Sequence[Column]
    methods: Callable[[Suite], Sequence[Method]]
    measure: Callable[[Bench, Any], Entry]
    picture: Callable[[Table, Path], None]
    finish: Callable[[Table], None] = nothing
    ahead: bool = True
    targets: bool = False

    def variants(self, suite: Suite) -> list[str]:
        return [method.name for method in self.methods(suite)]

    def method(self, suite: Suite, variant: str) -> Method:
        return next(method for method in self.methods(suite) if method.name == variant)

    def entry(self, bench: Bench, variant: str) -> Entry:
        return self.measure(bench, self.method(bench.suite, variant))
