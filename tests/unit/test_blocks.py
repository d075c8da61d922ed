"""Code in README.md and docs: Python is run, shell is read as the command line reads it."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup

from cluster.client.client import Client
from tests.support.blocks import PAGES, Block, blocks, languages
from tests.support.command_line import command_of, flags, flags_of, read, tree
from tests.support.fakes import new_home
from tests.support.instant import Guess, InProcess, Instant
from tests.support.places import ROOT

GLOBAL = {"--help", "--version"}


class Ran(Client):
    """A cluster that is there already."""

    def up(self, *given: Any, **named: Any) -> Any: ...

    def down(self) -> bool:
        return True


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the blocks take for granted: a folder, data, and a cluster whose work takes no time."""
    for name in ("reviews", "news", "trec"):
        (tmp_path / "data" / name).mkdir(parents=True)
        rows = [f"{name} {row},{'ab'[row % 2]}" for row in range(40)]
        (tmp_path / "data" / name / "rows.csv").write_text("\n".join(["text,label", *rows]))
    home = tmp_path / "home"
    coordinator = InProcess(home, Instant(home=new_home(home)))
    client = Ran(home, coordinator, Guess())
    monkeypatch.setattr("cluster.Client", lambda place=None, **how: client)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python(block: Block, folder: Path) -> None:
    if "import Client" in block.code and "submit(" not in block.code:
        (before,) = (b for b in blocks("python", "docs/how-to/own-data.md") if "submit(" in b.code)
        before.run()
    block.run()


def test_every_block_says_what_it_is() -> None:
    """Under another name a block of shell or Python would be looked at by nobody."""
    other = ("", "bash", "shell", "console", "py", "pycon", "python3")
    unknown = [place for place, name in languages().items() if name in other]
    assert not unknown, "write ```sh, ```python or ```text"


@pytest.mark.parametrize("block", blocks("sh"), ids=str)
def test_shell(block: Block) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for line in filter(None, block.code.splitlines()):
        program, *words = shlex.split(line, comments=True)
        if program == "tacl":
            read(words)
        elif program == "make":
            assert re.search(rf"^{words[0]}:", makefile, re.M), line
        else:
            assert program == "python", f"mark it <!-- not run: why -->: {line}"
            assert (ROOT / words[0]).is_file(), line


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_flags_in_the_text(page: str) -> None:
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.M | re.S)
    for span in re.findall(r"`([^`\n]+)`", text):
        words = span.split()
        if words[0] == "tacl" and len(words) > 1:
            command, rest = command_of(words[1:])
            assert flags(rest) <= flags_of(command), f"{page}: {span}"
        elif words[0].startswith("--"):
            assert flags(words) <= GLOBAL | every_flag(), f"{page}: {span}"


@cache
def every_flag() -> set[str]:
    def walk(command: Any) -> set[str]:
        if isinstance(command, TyperGroup):
            return set().union(*map(walk, command.commands.values()))
        return flags_of(command)

    return walk(tree())
