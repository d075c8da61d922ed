"""Arguments that are names of tasks, users and vectors, which a shell completes: those of the home
that the command is for.

A shell shows no message between two keys: where no cluster runs, or the asker sees nothing
or may not read the home, there is nothing to complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from jobs.cli import app as cli
from jobs.cli.options import argument, option
from tacl.errors import TaclError

_FACTOR = re.compile(r"[+-]?(?:[\d.]+\*)?")  # what a term has before its name


def tasks(ctx: typer.Context, incomplete: str) -> list[str]:
    return _beginning(incomplete, ctx, lambda client: [one.name for one in client.status().tasks])


def terms(ctx: typer.Context, incomplete: str) -> list[str]:
    """Of a recipe; the sign and the coefficient stay."""
    factor = _FACTOR.match(incomplete)
    assert factor is not None  # it matches nothing, too
    found = tasks(ctx, incomplete[factor.end() :])
    return [factor[0] + name for name in found]


def users(ctx: typer.Context, incomplete: str) -> list[str]:
    """Those who have a model."""

    def there(client: cli.Client) -> list[str]:
        named = client.users(incomplete) if incomplete else []  # who is called so already
        return [one.user for one in (*named, *client.users(after=incomplete))]

    return _beginning(incomplete, ctx, there)


def _beginning(
    incomplete: str, ctx: typer.Context, names: Callable[[cli.Client], list[str]]
) -> list[str]:
    try:
        found = names(cli.client(_home(ctx)))
    except (TaclError, OSError):
        return []
    return [name for name in found if name.startswith(incomplete)]


def _home(ctx: typer.Context) -> Path | None:
    """As when the command is done: that of the verb, else of `tacl`, else of the environment."""
    at: Any = ctx
    while at is not None:
        source = at.get_parameter_source("home")
        if source is not None and source.name == "COMMANDLINE":
            return at.params["home"]
        at = at.parent
    return ctx.params.get("home")


TaskName = Annotated[str, argument("NAME", "Name of the task.", tasks)]
User = Annotated[str, argument("USER", "User whose model it is.", users)]


def of_task(help: str, unset: str) -> Any:
    """A flag with the name of a task; `unset`: what holds without it."""
    return option("NAME", help, autocompletion=tasks, show_default=unset)
