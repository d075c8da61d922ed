"""What a table must say of itself for `run.py` to make it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.experiments.context import Bench
from jobs.experiments.suites import Suite
from jobs.experiments.table import Column, Entry, Table

Training = Callable[[Bench, str], Any]


def nothing(table: Table) -> None:
    """For tables whose entries do not depend on each other."""


@dataclass(frozen=True)
class Spec:
    """`variants` are made in this order, the most telling first, unless others are asked for.

    `finish` fills what needs several entries, each time before the table is written. `trainings`
    are those that a variant needs of every task, so that they can be done side by side.
    `targets`: it is about the suite's tasks outside the pool too.
    """

    name: str
    about: str
    columns: Sequence[Column]
    variants: Callable[[Suite], Sequence[str]]
    entry: Callable[[Bench, str], Entry]
    picture: Callable[[Table, Path], None]
    finish: Callable[[Table], None] = nothing
    trainings: Callable[[str], Sequence[Training]] = lambda variant: ()
    targets: bool = False
