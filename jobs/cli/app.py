"""What all commands of `tacl` share: options, errors, the output of answers."""

from __future__ import annotations

import errno
import functools
import inspect
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.models import ArgumentInfo

from jobs import console
from jobs.cli.options import Command, Declared, Group, flag, late, option, place
from tacl import __version__

if TYPE_CHECKING:
    from cluster.client.client import Client
    from cluster.domain.status import Watched
    from tacl.errors import TaclError
else:
    Client = Any  # the signature of a verb is read, without importing the client

Told = tuple[Any, Callable[[Any], Any]]  # an answer, and a function that makes its table or text

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help"], "max_content_width": 100},
    help="Train tasks separately, compose any of them at once.\n\n"
    "Tasks are submitted one after another. Each is trained into a task vector with little "
    "interference on the others. Any user composes a model from any of the vectors and queries it.",
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"tacl {__version__}")
        raise typer.Exit


Home = Annotated[
    Path | None,
    place(
        "DIR",
        "Home directory: settings, registry, stored files.",
        "--home",
        envvar="TACL_HOME",
        show_default="~/.tacl",
    ),
]
Json = Annotated[bool, flag("--json", "Print JSON instead of tables.")]


@app.callback()
def _options(
    home: Home = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """The options of `tacl` itself. A verb has --home too, which takes precedence."""
    if home is not None:
        os.environ["TACL_HOME"] = str(home)


Owner = Annotated[str | None, typer.Option(help="User who owns the task.", show_default="you")]
Private = Annotated[
    bool,
    flag("--private", "Hide the task and its samples from other users; its name is OWNER.NAME."),
]
Prompts = Annotated[
    list[str] | None,
    option(
        "TEXT",
        "A prompt with {} for the class name, where the base model reads names; repeatable.",
        "--template",
        show_default='"a photo of a {}.", of texts "This is about {}."',
    ),
]


def verb(
    group: str,
    of: typer.Typer = app,
    declared: Sequence[Declared] = (),
    **settings: Any,
) -> Callable[[Callable[..., Told | None]], Callable[..., None]]:
    """Make a command of `tacl`; an error prints one message and exits with the code of its class.

    The function takes the command's own flags, and first, as `client`, the client of `--home`. It
    returns the answer to print, or takes `as_json` and prints everything itself.

    `declared`: flags that it takes as `**keywords` (`jobs.cli.options`).
    """

    def decorate(function: Callable[..., Told | None]) -> Callable[..., None]:
        own = inspect.signature(function, eval_str=True)

        def guarded(home: Path | None = None, as_json: bool = False, **options: Any) -> None:
            from tacl.errors import BadConfig, StorageUnavailable, TaclError

            try:
                options |= {"as_json": as_json} if "as_json" in own.parameters else {}
                options |= {"client": client(home)} if "client" in own.parameters else {}
                if told := function(**options):
                    tell(told[0], as_json, told[1])
                print(end="", flush=True)  # a full disk behind stdout is seen here, not at exit
            except TaclError as error:
                refuse(error, as_json)
            except OSError as error:
                from cluster.client.session import default_home

                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    _drop_unwritten()
                    said = f"there is no room for what is written ({error.strerror})"
                    full = StorageUnavailable(f"{said}; free some, then repeat what you asked")
                    refuse(full, as_json)
                if not is_named(error.filename, [home or default_home(), *options.values()]):
                    raise
                refuse(BadConfig(f"{error.filename}: {error.strerror}"), as_json)
            except KeyboardInterrupt as stop:
                print(stop.args[0] if stop.args else "stopped", file=sys.stderr)
                raise typer.Exit(130) from None

        command = functools.wraps(function)(guarded)
        settings.setdefault("help", in_paragraphs(function.__doc__ or ""))
        command.__annotations__ = {}  # the signature has them

        def signed() -> Callable[..., None]:
            given = [one for options in declared for one in options()]
            command.__signature__ = _signature(own, given)  # type: ignore[attr-defined]
            return command

        if not declared:
            return of.command(rich_help_panel=group, cls=Command, **settings)(signed())
        # The list of commands needs only the name and the help.
        settings.setdefault("name", function.__name__.replace("_", "-"))
        of.command(rich_help_panel=group, cls=late(signed), **settings)(lambda: None)
        return command

    return decorate


def in_paragraphs(docstring: str) -> str:
    """Join the lines of each paragraph: the terminal wraps them."""
    return "\n\n".join(" ".join(one.split()) for one in docstring.split("\n\n"))


def is_named(path: object, values: Sequence[object]) -> bool:
    """Whether a file is one that the command names, or is below or above it."""
    if not isinstance(path, str | Path):
        return False
    parts = chain.from_iterable(one if isinstance(one, list | tuple) else [one] for one in values)
    named = [_real(one) for one in parts if isinstance(one, str | Path) and str(one)]
    found = _real(path)
    return any(found == one or found in one.parents or one in found.parents for one in named)


def _real(path: str | Path) -> Path:
    return Path(os.path.realpath(os.path.expanduser(path)))


@contextmanager
def ending(said: str) -> Iterator[None]:
    """Print `said` when Ctrl-C ends the block."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(said) from None


def detachable() -> AbstractContextManager[None]:
    """For waiting for the cluster's work: Ctrl-C ends only the waiting, and the message says so."""
    return ending("detached; the work goes on in the cluster: tacl status")


def _signature(own: inspect.Signature, declared: Sequence[inspect.Parameter]) -> inspect.Signature:
    """Arguments; then flags: those declared elsewhere, the function's own, those of all verbs."""
    tells = own.return_annotation is not None or "as_json" in own.parameters
    shared = [("home", Home, None)] * ("client" in own.parameters)
    shared += [("as_json", Json, False)] * tells
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=flag)
        for name, flag, value in shared
    ]
    kept = [
        one.replace(kind=one.KEYWORD_ONLY)
        for name, one in own.parameters.items()
        if name not in ("client", "as_json") and one.kind is not one.VAR_KEYWORD
    ]
    return inspect.Signature(sorted([*declared, *kept, *common], key=_is_flag))


def _is_flag(parameter: inspect.Parameter) -> bool:
    return not any(isinstance(one, ArgumentInfo) for one in parameter.annotation.__metadata__)


def refuse(error: TaclError, as_json: bool) -> NoReturn:
    """Print one message on stderr, and exit with the code of the error's class."""
    from cluster.errors import exit_code, name_of

    code = exit_code(error)
    if as_json:
        body = {"error": name_of(error), "message": str(error), "exit_code": code}
        print(json.dumps(body), file=sys.stderr)
    else:
        print(f"error: {error}", file=sys.stderr)
    raise typer.Exit(code)


def _drop_unwritten() -> None:
    """What stdout has no room for is dropped: Python would try again at exit, and exit with 120."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def client(home: Path | None) -> Client:
    from cluster.client.client import Client

    return Client(home)


def tell(found: Any, as_json: bool, table: Callable[[Any], Any]) -> None:
    """Print the answer on stdout: JSON, or a table or text."""
    if as_json:
        console.documents.print_json(found)
    elif isinstance(text := table(found), str):
        print(text)
    else:
        console.tables.console().print(text)


def run_reporter(say: Callable[[str], None]) -> Callable[[Watched], None]:
    """Return a function that says the state of a run and the time left, when they change; in a
    file, lines about the same state are some seconds apart."""
    pause = 0.0 if console.progress.stderr().is_terminal else console.progress.QUIET_SECONDS
    last, state, at = "", "", 0.0

    def tell_run(run: Watched) -> None:
        nonlocal last, state, at
        now, line = time.monotonic(), console.progress.described(run)
        if line != last and (run.state != state or now - at >= pause):
            last, state, at = line, run.state, now
            say(line)

    return tell_run
