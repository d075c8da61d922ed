"""The reference of the site, made of the program itself at every build: it cannot be out of date.

A hook of MkDocs (mkdocs.yml). Nothing is started: the names of `tacl`, the commands of the command
line and the routes of the HTTP API are asked what they are. The notebook of examples/ becomes a
page with the outputs that it keeps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter
from typer.core import TyperGroup
from typer.main import get_command

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

    from cluster.api.service import Service


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """MkDocs asks for it when it has found the pages."""
    found = openapi()
    generated = {
        "reference/python.md": python_api(),
        "reference/cli.md": command_line(),
        "reference/http.md": routes(found),
        "reference/openapi.json": json.dumps(found, indent=1),
        **notebook(Path(config.docs_dir).parent / "examples/story.ipynb"),
    }
    for path, content in generated.items():
        files.append(File.generated(config, path, content=content))
    return files


def notebook(file: Path) -> dict[str, str | bytes]:
    """Its page and its pictures; links into docs/ are those of the site."""
    text, found = MarkdownExporter().from_filename(str(file))
    page = {f"examples/{file.stem}.md": text.replace("](../docs/", "](../")}
    return page | {f"examples/{name}": picture for name, picture in found["outputs"].items()}


def python_api() -> str:
    """Every public name; mkdocstrings puts its docstring there."""
    import tacl

    names = [name for name in tacl.__all__ if name != "__version__"]
    mathematics = "\n".join(f"::: tacl.{name}\n" for name in names)
    return (
        f"# Python\n\n## tacl\n\n{mathematics}\n"
        "## cluster.Client\n\n::: cluster.client.client.Client\n    options:\n"
        "      inherited_members: true\n      force_inspection: true\n"
    )


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
