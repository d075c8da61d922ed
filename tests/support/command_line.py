"""The command line: its answers over the real coordinator in this process, and its commands."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import Result

from jobs.cli.main import app

Tacl = Callable[..., Result]


def ok(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def as_json(result: Result) -> Any:
    return json.loads(ok(result))


def read(words: list[str]) -> None:
    """Parse a command line with all checks, without running it. Usage errors are raised."""
    command, rest = command_of(words)
    command.make_context("tacl", list(rest))
    assert flags(rest) <= flags_of(command), f"no such flag: {words}"


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    command: Any = tree()
    while isinstance(command, TyperGroup) and words and not words[0].startswith("--"):
        assert words[0] in command.commands, f"no such command: tacl {' '.join(words)}"
        command, words = command.commands[words[0]], words[1:]
    return command, words


def flags(words: list[str]) -> set[str]:
    return {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}


def flags_of(command: Any) -> set[str]:
    """The flags of a command, with those that are declared late (jobs.cli.options)."""
    context = command.make_context("tacl", [], resilient_parsing=True)
    found = context.command.get_params(context)
    return {name for one in found for name in one.opts}


@cache
def tree() -> Any:
    return get_command(app)
