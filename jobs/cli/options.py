"""Flags that are declared elsewhere, as fields of models of `cluster.domain`.

A command takes them as keywords, `**options`. They are made when the command is used, so that
`tacl --help` imports no pydantic.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

Declared = Callable[[], list[inspect.Parameter]]
ALSO = {"strength": "--penalty-weight"}  # another flag of a field: its name in `tacl.train`


class _PlainFlags:
    """A flag without a value shows none in the help; wrong values are refused in our words."""

    def make_context(self, *arguments: Any, **extra: Any) -> Any:
        try:
            return super().make_context(*arguments, **extra)  # type: ignore[misc]
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise

    def get_params(self, ctx: Any) -> list[Any]:
        found = super().get_params(ctx)  # type: ignore[misc]
        for one in found:
            if getattr(one, "is_flag", False):
                one.metavar = ""
        return found


class Command(_PlainFlags, TyperCommand):
    """A verb."""


class Group(_PlainFlags, TyperGroup):
    """`tacl`, and its groups of verbs."""


def data_options() -> list[inspect.Parameter]:
    """Flags of `cluster.domain.tasks.Reading`; the names of classes are one text."""
    from cluster.domain.names import class_names
    from cluster.domain.tasks import Reading

    column = {"metavar": "COLUMN", "rich_help_panel": "Data"}
    names = column | {"metavar": "A,B,...", "unset": "from the data", "parser": class_names}
    fields = Reading.model_fields.items()
    return [_parameter(n, field, **(names if n == "classes" else column)) for n, field in fields]


def training_options() -> list[inspect.Parameter]:
    """Flags of `cluster.domain.tasks.Options`."""
    from cluster.domain.tasks import Options

    by_rule = {"rich_help_panel": "Training", "unset": "by rule"}
    return [_parameter(name, field, **by_rule) for name, field in Options.model_fields.items()]


def import_options() -> list[inspect.Parameter]:
    """The flags of a training that set how data are read, and which head answers for the task."""
    return [one for one in training_options() if one.name in ("heads", "seed", "skip_bad")]


def composition_options() -> list[inspect.Parameter]:
    """Flags of `cluster.domain.compositions`: the method, and the data that it learns from."""
    from cluster.domain.compositions import CompositionMethod, LearnedFrom

    how, rows = CompositionMethod.model_fields, LearnedFrom.model_fields.items()
    written = {"fit": "DATA", "shots": "K", "adapt": "DATA"}
    made = [_parameter(name, how[name]) for name in ("method", "select")]
    return made + [_parameter(name, field, metavar=written[name]) for name, field in rows]


def _parameter(
    name: str, field: FieldInfo, unset: str | bool = False, **settings: Any
) -> inspect.Parameter:
    """The flag of a field. `unset`: the default that the help shows for None, if the description
    names none. A value with a `parser` is one text."""
    flags = ["--" + name.replace("_", "-"), *filter(None, [ALSO.get(name)])]
    said, _, default = (field.description or "").partition(" Default: ")
    shown = default.removesuffix(".") or unset if field.default is None else True
    option = typer.Option(*flags, help=said, show_default=shown, **settings)
    written = str | None if "parser" in settings else field.annotation
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=field.default,
        annotation=Annotated[written, option],
    )


def late(signed: Callable[[], Callable[..., None]]) -> type[Command]:
    """A command that makes its flags when it is used: `signed` returns it with all of them."""

    class Late(Command):
        def make_context(self, *arguments: Any, **extra: Any) -> Any:
            app = typer.Typer(add_completion=False, rich_markup_mode="rich")
            settings = dict(self.context_settings)
            app.command(help=self.help, context_settings=settings, cls=Command)(signed())
            return typer.main.get_command(app).make_context(*arguments, **extra)

    return Late


# -- flags and arguments of a verb, declared in its signature


Names = Callable[[typer.Context, str], list[str]]  # for completion by a shell (`jobs.cli.names`)


def argument(metavar: str, help: str, names: Names | None = None, **settings: Any) -> Any:
    return typer.Argument(metavar=metavar, help=help, autocompletion=names, **settings)


def option(metavar: str, help: str, *names: str, **settings: Any) -> Any:
    """A flag with a value; it is named like the parameter, unless names are given."""
    return typer.Option(*names, metavar=metavar, help=help, **settings)


def place(metavar: str, help: str, *names: str, **settings: Any) -> Any:
    """A flag with a file or folder."""
    return option(metavar, help, *names, parser=path, **settings)


def path(text: str) -> Path:
    """A path. A shell does not expand the ~ of --out=~/DIR; a variable that is not set gives empty
    text, which would be the current directory."""
    if not text:
        raise typer.BadParameter("no file or folder is named")
    return Path(os.path.expanduser(text))


def number(help: str, least: float = 1, most: float | None = None, **settings: Any) -> Any:
    """A flag with a number, from `least` to `most`."""
    return typer.Option(min=least, max=most, help=help, **settings)


def flag(name: str, help: str) -> Any:
    """A flag without a value, and without its opposite `--no-...`."""
    return typer.Option(name, help=help)
