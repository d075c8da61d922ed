"""The reference of the site, made of the program itself at every build: it cannot be out of date.

A hook of MkDocs (mkdocs.yml). Nothing is started: the names of `tacl`, the commands of the command
line and the routes of the HTTP API are asked what they are. The notebook of examples/ becomes a
page with the outputs that it keeps, each program there a page of its code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from inspect import formatannotation, getmembers, isfunction, signature
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, cast

from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter
from pydantic import BaseModel
from typer.core import TyperGroup
from typer.main import get_command

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

    from cluster.api.service import Service

PARTS = (  # what documents and examples take from elsewhere than `tacl` itself
    "tacl.heads.head.union",
    "tacl.heads.novelty.Novelty",
    "tacl.training.config.RefreshConfig",
    "tacl.training.loop.Store",
    "tacl.training.refresh.refresh",
    "tacl.vectors.params.Params",
    "tacl.embedded.parquet.png",
)
INTEGRATIONS = ("tacl.integrations.sklearn.TaclClassifier", "tacl.integrations.mlflow.log_model")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """MkDocs asks for it when it has found the pages."""
    found, examples = openapi(), Path(config.docs_dir).parent / "examples"
    generated = {
        "reference/python.md": python_api(),
        "reference/cli.md": command_line(),
        "reference/http.md": routes(found),
        "reference/openapi.json": json.dumps(found, indent=1),
        **notebook(examples / "story.ipynb"),
        **{f"examples/{one.stem}.md": program(one) for one in examples.glob("*.py")},
    }
    for path, content in generated.items():
        files.append(File.generated(config, path, content=content))
    return files


def notebook(file: Path) -> dict[str, str | bytes]:
    """Its page and its pictures; links into docs/ are those of the site."""
    text, found = MarkdownExporter().from_filename(str(file))
    page = {f"examples/{file.stem}.md": text.replace("](../docs/", "](../")}
    return page | {f"examples/{name}": picture for name, picture in found["outputs"].items()}


def program(file: Path) -> str:
    """Its code, which begins with what it does and prints."""
    return f"# {file.stem.replace('_', ' ').capitalize()}\n\n```python\n{file.read_text()}```\n"


def python_api() -> str:
    """Every name that a program may take; mkdocstrings puts its docstring there."""
    import tacl
    from tacl import embedded

    return "\n".join([
        "# Python", "",
        "## tacl", "",
        *(_of(f"tacl.{name}") for name in tacl.__all__ if name != "__version__"),
        "## Parts of tacl", "", *map(_of, PARTS),
        "## Other libraries", "", *map(_of, INTEGRATIONS),
        "## tacl.embedded", "", _of("tacl.embedded", members=False),
        *(_of(f"tacl.embedded.{name}") for name in embedded.__all__),
        "## cluster.Client", "",
        _of("cluster.client.client.Client", inherited_members=True, force_inspection=True),
        "## What a client answers", "",
        *map(_answer, answers()),
        "## tacl.errors", "", _of("tacl.errors"),
    ])  # fmt: skip


def _of(name: str, **options: bool) -> str:
    told = [f"      {option}: {str(value).lower()}" for option, value in options.items()]
    return "\n".join([f"::: {name}", *(["    options:", *told] if told else []), ""])


def answers() -> list[type]:
    """Classes that the client's methods return, and those that these hold, by name."""
    from cluster.client.client import Client

    known = _messages()
    methods = (one for name, one in getmembers(Client, isfunction) if name[0] != "_")
    words = re.findall(r"\w+", " ".join(str(signature(one).return_annotation) for one in methods))
    found = set[type]()
    while words:
        one = known.get(words.pop())
        if one is not None and one not in found:
            found.add(one)
            words += [word for told in _fields(one).values() for word in re.findall(r"\w+", told)]
    return sorted(found, key=lambda one: one.__name__)


def _messages() -> dict[str, type]:
    """The classes of cluster.domain, and of the doctor, by name."""
    import cluster.domain

    names = [f"cluster.domain.{one.name}" for one in iter_modules(cluster.domain.__path__)]
    places = map(import_module, (*names, "cluster.runtime.doctor"))
    return {
        name: one
        for place in places
        for name, one in vars(place).items()
        if isinstance(one, type) and one.__module__ == place.__name__
    }


def _fields(one: type) -> dict[str, str]:
    """The types of a message's fields."""
    fields = one.model_fields if issubclass(one, BaseModel) else {}
    return {name: _type(formatannotation(field.annotation)) for name, field in fields.items()}


def _type(text: str) -> str:
    return re.sub(r"(?:\w+\.)+(?=\w)", "", text)


def _answer(one: type) -> str:
    """What it says of itself; its fields and properties, or the values of an enumeration."""
    asked = _of(f"{one.__module__}.{one.__name__}", members=False)
    if issubclass(one, Enum):
        return "\n".join([asked, ", ".join(f"`{value.value}`" for value in one), ""])
    rows = [(name, told, "") for name, told in _fields(one).items()]
    rows += [
        (name, _type(signature(found.fget).return_annotation), _line(found.__doc__))
        for name, found in getmembers(one, lambda member: isinstance(member, property))
        if not hasattr(BaseModel, name)
    ]
    lines = (f"| `{name}` | `{told}` | {meaning} |" for name, told, meaning in rows)
    return "\n".join([asked, "| | | |", "| --- | --- | --- |", *lines, ""])


def command_line() -> str:
    """Every verb with its arguments and flags, as `--help` says them."""
    sections = [
        f"## `{name}`\n\n{_plain(command.help)}\n\n{_parameters(command)}"
        for name, command in verbs()
    ]
    return "\n\n".join([
        "# Command line", "Every command has `--help`; [exit codes](#exit-codes) are below.",
        *sections, exit_codes(), "",
    ])  # fmt: skip


def exit_codes() -> str:
    """A row for each class of error, after what is no error of a person's."""
    from cluster.errors import TABLE

    unasked = {
        0: "It is done.",
        1: "A defect of the program; `tacl doctor`: something is wrong; "
        "`tacl remove --purge`: you did not confirm it.",
        2: "The command line cannot be parsed.",
        130: "Ended by Ctrl-C; at a question that is 1.",
    }
    rows = [(code, "", meaning) for code, meaning in unasked.items()]
    rows += [(code, f"`{cls.__name__}`", _line(cls.__doc__)) for cls, (code, _) in TABLE.items()]
    return "\n".join([
        "## Exit codes", "",
        "The message is on stderr; with `--json` as `error`, `message` and `exit_code`. In Python",
        "the same classes are raised, of `tacl.errors`. A code stays that of its class.", "",
        "| code | error | |", "| ---: | --- | --- |",
        *(f"| {code} | {name} | {meaning} |" for code, name, meaning in sorted(rows)),
    ])  # fmt: skip


def verbs() -> Iterator[tuple[str, Any]]:
    """(`tacl VERB`, the command with all of its flags), in the order of the help page."""
    from jobs.cli.main import app

    def walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(command, TyperGroup):
            for word, inner in command.commands.items():
                yield from walk(f"{name} {word}", inner)
        else:  # flags that are declared late (jobs.cli.options) are there in a context
            yield name, command.make_context(name, [], resilient_parsing=True).command

    return walk("tacl", get_command(app))


def _parameters(command: Any) -> str:
    context = command.make_context(None, [], resilient_parsing=True)
    records = [one.get_help_record(context) for one in command.get_params(context)]
    shown = ((name, said) for name, said in filter(None, records) if name != "--help")
    return "\n".join(
        ["| | |", "| --- | --- |", *(f"| `{n}` | {_cell(said)} |" for n, said in shown)]
    )


def _cell(text: str) -> str:
    return _plain(text.replace("\\[", "[")).replace("|", "\\|").replace("\n", " ").strip()


def _plain(text: str | None) -> str:
    """Without what Markdown or HTML would read."""
    return (text or "").replace("\f", "").replace("<", "&lt;").replace("*", "\\*")


def openapi() -> dict[str, Any]:
    """The document that a server gives at /v1/openapi.json."""
    from cluster.api.app import create_app

    nobody = cast("Service", None)  # is asked nothing by a description
    return create_app(nobody, open_to_all=False).openapi()


def routes(found: dict[str, Any]) -> str:
    """A line for each operation of the OpenAPI document, which has the rest."""
    lines = [
        f"| `{method.upper()} {path}` | {_line(one.get('description') or one['summary'])} |"
        for path, methods in found["paths"].items()
        for method, one in methods.items()
    ]
    return "\n".join([
        "# HTTP", "",
        "A server describes itself in full at `/v1/openapi.json`: bodies, answers, refusals,",
        "examples. [The same document](openapi.json), of this version.", "",
        "| | |", "| --- | --- |", *lines, "",
    ])  # fmt: skip


def _line(text: str | None) -> str:
    """The first paragraph, as a cell."""
    return _cell(" ".join((text or "").split("\n\n")[0].split()))
