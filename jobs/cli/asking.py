"""Questions that a person has to confirm before something is done; programs are not asked."""

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
    """Whether somebody sees a question, which is asked on stderr, and can answer it."""
    both = sys.stdin, sys.stderr  # None if closed before the start
    return all(one is not None and not one.closed and one.isatty() for one in both)


def asked_again(count: console.progress.Counter, same: str) -> bool:
    """Whether rows that a task already has are to be submitted again; `same` names the tasks."""
    if not is_person():
        return False
    with count.aside():
        return typer.confirm(f"{same}\nSubmit them again?", err=True)
