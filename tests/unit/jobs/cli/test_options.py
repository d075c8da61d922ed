"""What a program chooses by a keyword of the client, the command line has too."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from cluster.client import keywords
from cluster.client.client import Client
from cluster.domain.tasks import Options
from cluster.domain.users import Role
from jobs.cli import main
from tacl.interchange.formats import Format

VERBS = {  # by the method that they ask
    "add_samples": "submit",
    "cancel": "cancel",
    "collect": "gc",
    "compare": "vectors",
    "compose": "compose",
    "doctor": "doctor",
    "evaluate": "evaluate",
    "explain": "explain",
    "export": "export",
    "export_vector": "export-vector",
    "import_checkpoint": "import",
    "init": "init",
    "issue_token": "users issue",
    "query": "query",
    "remove": "remove",
    "serve": "serve",
    "submit": "submit",
    "tokens": "users list",
    "up": "up",
    "usage": "users list",
}
# What tells a program how far it is, or is decided by the verb.
OF_PROGRAMS = {"self", "agree", "measuring", "poll", "progress", "read", "request_id", "vector"}
CALLED = {  # otherwise than the keyword
    "add_samples": {"data": "add_samples"},
    "cancel": {"task": "name"},
    "compare": {"task": "name", "one": "compare", "other": "compare"},
    "query": {"tasks": "task"},
    "serve": {"open_to_all": "no_access"},
    "submit": {"templates": "template"},
    "import_checkpoint": {"templates": "template"},
    "tokens": {"whose": "user"},
    "usage": {"whose": "user"},
}
# An import trains nothing.
OF_A_TRAINING = Options.model_fields.keys() - {"heads", "refresh", "seed", "share", "skip_bad"}


def keywords_of(method: str) -> Iterator[str]:
    """Those that a `**` stands for, too."""
    for name, parameter in inspect.signature(getattr(Client, method)).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            form = parameter.annotation.removeprefix("Unpack[").removesuffix("]")
            yield from getattr(keywords, form).__optional_keys__
        else:
            yield name


def parameters_of(verb: str) -> list[Any]:
    command: Any = get_command(main.app)
    for name in verb.split():
        command = command.commands[name]
    return command.make_context(verb, [], resilient_parsing=True).command.params


def flags_of(verb: str) -> set[str]:
    return {one.name for one in parameters_of(verb)}


@pytest.mark.parametrize("method", VERBS)
def test_a_keyword_of_the_client_is_a_flag(method: str) -> None:
    asked = {*keywords_of(method)} - OF_PROGRAMS
    if method == "import_checkpoint":
        asked -= OF_A_TRAINING
    called = CALLED.get(method, {})
    assert {called.get(name, name) for name in asked} - flags_of(VERBS[method]) == set()


@pytest.mark.parametrize(
    ("verb", "flag", "declared"),
    [
        ("users issue", "role", Role),
        ("import", "refresh", Options.model_fields["refresh"].annotation),
        ("export", "format", Format),
    ],
)
def test_choices_are_those_that_are_declared(verb: str, flag: str, declared: Any) -> None:
    (found,) = (one for one in parameters_of(verb) if one.name == flag)
    assert found.type_descriptor.annotation == declared
