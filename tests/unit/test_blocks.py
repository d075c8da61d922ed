"""Code in README.md and docs: Python and `tacl` are run; what is marked as not run is read at least
as the command line reads it."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.core import TyperGroup
from typer.testing import CliRunner

import tacl
from cluster.client.client import Client
from cluster.domain.operations import StartedCluster
from cluster.runtime import doctor
from jobs.cli import app, main
from tests.support.blocks import PAGES, Block, blocks, of_page
from tests.support.command_line import command_of, flags, flags_of, ok, read, tree
from tests.support.fakes import BASE, new_home
from tests.support.instant import Guess, InProcess, Instant
from tests.support.places import ROOT

GLOBAL = {"--help", "--version"}
LOOKED_AT = ("python", "sh", "text")
PYTHON = [block for page in PAGES for block in of_page(page) if block.language == "python"]
SHELL = [block for page in PAGES for block in of_page(page) if block.language == "sh"]
LOADS = doctor.Check(check="torch", ok=True, found="loads")  # test_doctor measures
ELSEWHERE = ("docs/tutorial.md", "docs/how-to/http.md")  # test_tutorial, integration/test_how_to


class Ran(Client):
    """A cluster that is there already."""

    def up(self, *given: Any, **named: Any) -> Any:
        base = {"base": BASE.spec, "digest": BASE.digest, "modality": BASE.modality}
        where = {"home": str(self.home.path), "address": "", "pid": 0}
        return StartedCluster.model_validate(base | where | {"generic_rows": 2, "started": False})

    def down(self) -> bool:
        return True


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    """What the blocks take for granted: a folder, data, and a cluster whose work takes no time."""
    for name in ("reviews", "news", "trec", "ours", "spam"):
        (tmp_path / "data" / name).mkdir(parents=True)
        rows = [f"{name} {row},{'ab'[row % 2]}" for row in range(40)]
        (tmp_path / "data" / name / "rows.csv").write_text("\n".join(["text,label", *rows]))
    home = tmp_path / "home"
    coordinator = InProcess(home, Instant(home=new_home(home)))
    client = Ran(home, coordinator, Guess())
    monkeypatch.setattr("cluster.Client", lambda place=None, **how: client)
    monkeypatch.setattr(app, "client", lambda home: client)
    monkeypatch.setattr(doctor, "_libraries", lambda: LOADS)
    monkeypatch.chdir(tmp_path)
    return client


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python(block: Block, client: Client) -> None:
    if "import Client" in block.code and "submit(" not in block.code:
        (before,) = (b for b in blocks("python", "docs/how-to/own-data.md") if "submit(" in b.code)
        before.run()
    block.run()


def test_readme_trains_with_the_loop_that_is_here_and_in_an_own_one() -> None:
    """Each in at most fifteen lines beside its imports; an own loop learns its task."""
    here, own = blocks("python", "README.md")
    for block, call in ((here, "tacl.train("), (own, "optimizer.step()")):
        lines = [line for line in block.code.splitlines() if not line.startswith("import ")]
        assert call in block.code
        assert len([*filter(None, lines)]) <= 15
    torch.manual_seed(0)
    known: dict[str, Any] = own.run()
    rows, vectors = (known["x"], known["y"]), {"mine": known["vector"]}
    found = tacl.evaluate(known["base"], rows, known["head"], vectors)
    assert found.accuracy({"mine": 1.0}) > found.accuracy({}) + 0.05


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_is_compiled(block: Block) -> None:
    """Marked or not."""
    assert block.compiled()


@pytest.mark.parametrize("block", [b for b in blocks("sh") if b.page not in ELSEWHERE], ids=str)
def test_shell(block: Block, client: Client) -> None:
    """In a home of its own: one that has the tasks and a model, unless it begins with `tacl up`."""
    if "tacl up" not in block.code:
        for name in ("news", "trec", "ours"):
            client.submit(name, f"data/{name}")
        client.wait()
        client.compose("alice", ["+news", "+trec"])
    for line in filter(None, block.code.splitlines()):
        program, *words = shlex.split(line, comments=True)
        assert program == "tacl", f"mark it <!-- not run: why -->: {line}"
        ok(CliRunner().invoke(main.app, words))


def test_every_block_says_what_it_is() -> None:
    """One that is not marked is looked at: nobody would run it under another name."""
    found = [block for page in PAGES for block in of_page(page) if block.not_run is None]
    unknown = [str(block) for block in found if block.language not in LOOKED_AT]
    assert not unknown, "write ```sh, ```python or ```text, or mark it <!-- not run: why -->"


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_shell_is_read(block: Block) -> None:
    """Marked or not: programs, commands and flags are there."""
    makefile = (ROOT / "Makefile").read_text()
    for line in filter(None, block.code.replace("\\\n", "").splitlines()):
        program, *words = shlex.split(line, comments=True)
        if program == "tacl" and words[0].startswith("--"):
            assert flags(words) <= flags_of(tree()), line
        elif program == "tacl":
            read(words)
        elif program == "make":
            assert re.search(rf"^{words[0]}:", makefile, re.M), line
        else:
            assert block.not_run, f"mark it <!-- not run: why -->: {line}"


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
