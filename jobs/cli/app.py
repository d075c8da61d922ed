"""What every command of `tacl` shares: its options, its errors, how it answers."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tacl import __version__

if TYPE_CHECKING:
    from cluster.client.client import Client
    from tacl.errors import TaclError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help"], "max_content_width": 100},
    help="Train tasks apart, compose any of them at once.\n\n"
    "Tasks are submitted one after another; each becomes a task vector that leaves the others "
    "alone. Any user composes a model out of any of the vectors and asks it questions.",
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"tacl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """The options of `tacl` itself."""


Home = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="DIR",
        envvar="TACL_HOME",
        show_default="~/.tacl",
        help="The installation: registry, blobs, settings.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
TaskName = Annotated[str, typer.Argument(metavar="NAME", help="The task.")]
User = Annotated[str, typer.Argument(metavar="USER", help="Whose model.")]


def verb(
    group: str, of: typer.Typer = app, **settings: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command of `tacl`, whose errors are one message and the exit code of their class."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def guarded(*args: Any, as_json: bool = False, **options: Any) -> None:
            from tacl.errors import TaclError

            try:
                function(*args, as_json=as_json, **options)
            except TaclError as error:
                refuse(error, as_json)
            except KeyboardInterrupt:
                print("stopped looking; what the cluster does goes on", file=sys.stderr)
                raise typer.Exit(130) from None

        return of.command(rich_help_panel=group, **settings)(guarded)

    return decorate


def refuse(error: TaclError, as_json: bool) -> NoReturn:
    """One message on stderr, and the exit code of the error's class."""
    from cluster.errors import exit_code

    code = exit_code(error)
    if as_json:
        body = {"error": type(error).__name__, "message": str(error), "exit_code": code}
        print(json.dumps(body), file=sys.stderr)
    else:
        print(f"error: {error}", file=sys.stderr)
    raise typer.Exit(code)


def client(home: Path | None) -> Client:
    from cluster.client.client import Client

    return Client(home)


def tell(found: Any, as_json: bool, table: Callable[[Any], Any]) -> None:
    """The answer on stdout: JSON, or a table or words for a person."""
    from jobs.console import tables

    if as_json:
        plain = found.model_dump(mode="json") if hasattr(found, "model_dump") else found
        print(json.dumps(plain, indent=2))
    elif isinstance(said := table(found), str):
        print(said)
    else:
        tables.console().print(said)


def telling(say: Callable[[str], None]) -> Callable[[dict[str, Any]], None]:
    """Tell a run's state when it changes."""
    from jobs.console.progress import said

    told: list[str] = []

    def tell_run(run: dict[str, Any]) -> None:
        if (line := said(run)) not in told[-1:]:
            told.append(line)
            say(line)

    return tell_run
