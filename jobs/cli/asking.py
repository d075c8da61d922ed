"""Questions that a person has to confirm before something is done; programs are not asked."""

from __future__ import annotations

import sys
from contextlib import redirect_stderr
from typing import Annotated, TextIO

import typer

from jobs import console
from jobs.cli.options import flag

TERMINAL = "/dev/tty"

Again = Annotated[
    bool, flag("--again", "Also where another task has the same rows; else it is asked about.")
]


def is_person() -> bool:
    """Whether somebody can answer a question: stdin is a terminal. It may have been closed."""
    return _is_terminal(sys.stdin)


def confirmed(question: str) -> bool:
    """Ask a person; on the terminal itself if stderr, which shows questions, goes elsewhere."""
    if _is_terminal(sys.stderr):
        return typer.confirm(question, err=True)
    with open(TERMINAL, "w") as terminal, redirect_stderr(terminal):
        return typer.confirm(question, err=True)


def asked_again(count: console.progress.Counter, same: str) -> bool:
    """Whether rows that a task already has are to be submitted again; `same` names the tasks."""
    if not is_person():
        return False
    with count.aside():
        return confirmed(f"{same}\nSubmit them again?")


def _is_terminal(stream: TextIO | None) -> bool:
    """None is the stream of a process that was started with it closed."""
    return stream is not None and not stream.closed and stream.isatty()
