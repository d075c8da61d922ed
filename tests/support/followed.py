"""Follows a page of the documents step by step, as a reader does: what a block prints must match
what the page shows."""

from __future__ import annotations

import getpass
import io
import re
import shlex
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import pytest
from typer.testing import CliRunner

from jobs.cli import main
from tests.support.blocks import of_page
from tests.support.inline import Here

NUMBER = re.compile(r"(?:(?<!\S)[+-])?\b\d+(?:\.\d+)?\b")
LOSS = r"(?<=ready  )\d\.\d{3}\b"  # of the last step that was printed: which one depends on timing
OTHER = re.compile(rf"{LOSS}|\b([0-9a-f]{{12}}|root|{re.escape(getpass.getuser())})\b")
POINTS, SHARE = 4.0, 0.05  # by which another processor or engine may differ; twice as much with a
# sign, which differences of two figures have


class Plainly(Here):
    """Here all trainings are in one process, which may have only one engine of DeepSpeed."""

    def submit(self, *given: Any, **named: Any) -> Any:
        return super().submit(*given, **(named | {"engine": "plain"}))


def follow(page: str) -> None:
    """Run every block in order; a block of text is the output of the one before it."""
    ways: dict[str, Callable[[str], str]] = {"python": _python, "sh": _shell}
    printed = ""
    for block in of_page(page):
        if block.not_run is None and block.language in ways:
            printed = ways[block.language](block.code)
        elif block.not_run is None and block.language == "text":
            require_shown(block.code, printed, str(block))


def _python(code: str) -> str:
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "page", "exec"), {})
    return printed.getvalue()


def _shell(code: str) -> str:
    return "".join(map(_command, code.splitlines()))


def _command(line: str) -> str:
    found = CliRunner().invoke(main.app, shlex.split(line, comments=True)[1:])
    assert found.exit_code == 0, f"{line}\n{found.output}"
    return found.stdout


def require_shown(shown: str, printed: str, place: str) -> None:
    """Compare line by line: words must be equal, and figures close. More may have been printed, for
    which the page has `...`."""
    rest = iter(printed.splitlines())
    for line in (line for line in shown.splitlines() if line.strip() not in ("", "...")):
        same = next((one for one in rest if _words(one) == _words(line)), None)
        assert same is not None, f"{place} shows {line!r}, and was printed:\n{printed}"
        for told, now in zip(_figures(line), _figures(same), strict=True):
            most = SHARE if max(abs(float(told)), abs(float(now))) <= 1 else POINTS
            close = pytest.approx(float(now), abs=2 * most if told[0] in "+-" else most)
            assert float(told) == close, f"{place}: {line!r}, now {same!r}"


def _words(line: str) -> list[str]:
    """The words of a line, without figures, digests and the user's name."""
    return NUMBER.sub("0", OTHER.sub("_", line)).split()


def _figures(line: str) -> list[str]:
    return NUMBER.findall(OTHER.sub("_", line))
