"""Arguments that are names of tasks, users and vectors, which a shell completes: those of the home
that the command is for.

A shell shows no message between two keys: where no cluster runs, or the asker sees nothing,
there is nothing to complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

import typer

from jobs.cli import app as cli
from jobs.cli.options import argument
from tacl.errors import TaclError

_FACTOR = re.compile(r"[+-]?(?:[\d.]+\*)?")  # what a term has before its name


def tasks(ctx: typer.Context, incomplete: str) -> list[str]:
    return _beginning(incomplete, ctx, lambda asked: [one.name for one in asked.status().tasks])


def terms(ctx: typer.Context, incomplete: str) -> list[str]:
    """Of a recipe; the sign and the coefficient stay."""
    factor = _FACTOR.match(incomplete)
    assert factor is not None  # it matches nothing, too
    found = tasks(ctx, incomplete[factor.end() :])
    return [factor[0] + name for name in found]


def users(ctx: typer.Context, incomplete: str) -> list[str]:
    """Those who have a model."""
    return _beginning(
        incomplete, ctx, lambda asked: [one.user for one in asked.users(after=incomplete)]
    )


def _beginning(
    incomplete: str, ctx: typer.Context, names: Callable[[cli.Client], list[str]]
) -> list[str]:
    try:
        found = names(cli.client(ctx.params.get("home")))
    except TaclError:
        return []
    return [name for name in found if name.startswith(incomplete)]


TaskName = Annotated[str, argument("NAME", "Name of the task.", tasks)]
User = Annotated[str, argument("USER", "User whose model it is.", users)]
