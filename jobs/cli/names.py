"""Arguments that are names of tasks, users and vectors of the command's home, completed by a shell.

A shell shows no message between two keys: if no cluster runs, or the user sees nothing or may not
read the home, nothing is completed.
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

_FACTOR = re.compile(r"[+-]?(?:[\d.]+\*)?")  # what precedes the name in a term


def tasks(ctx: typer.Context, incomplete: str) -> list[str]:
    return _beginning(incomplete, ctx, lambda client: [one.name for one in client.status().tasks])


def terms(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a term of a recipe; its sign and coefficient are kept."""
    factor = _FACTOR.match(incomplete)
    assert factor is not None  # it also matches an empty text
    found = tasks(ctx, incomplete[factor.end() :])
    return [factor[0] + name for name in found]


def users(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete users who have a model."""

    def there(client: cli.Client) -> list[str]:
        named = client.users(incomplete) if incomplete else []  # the user with exactly this name
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
    """The home of the command: `--home` of the verb, else of `tacl`, else the environment's."""
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
    """A flag with the name of a task; `unset`: its effect if it is not given."""
    return option("NAME", help, autocompletion=tasks, show_default=unset)
