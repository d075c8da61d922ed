"""What a person is asked before it is done; nobody else is."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from jobs import console
from jobs.cli.options import flag

Again = Annotated[
    bool, flag("--again", "Also where another task has the same rows; else it is asked about.")
]


def is_person() -> bool:
    return sys.stdin.isatty()


def asked_again(count: console.progress.Counter, same: str) -> bool:
    """Whether rows that a task has are submitted once more; `same` says whose they are."""
    if not is_person():
        return False
    with count.aside():
        return typer.confirm(f"{same}\nSubmit them again?", err=True)
