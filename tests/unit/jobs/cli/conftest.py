"""The command line over the real coordinator in this process."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from cluster.client.client import Client
from jobs.cli import app, main
from tests.support.command_line import Tacl
from tests.support.fakes import new_home
from tests.support.instant import Guess, InProcess, Instant

verbs = cache(get_command)  # their tree is built once: that takes longest


@pytest.fixture
def launcher(tmp_path: Path) -> Instant:
    return Instant(home=new_home(tmp_path / "home"))


@pytest.fixture
def tacl(tmp_path: Path, launcher: Instant, monkeypatch: pytest.MonkeyPatch) -> Tacl:
    """Runs `tacl ARGUMENTS` in the folder of the data."""
    client = Client(tmp_path / "home", InProcess(tmp_path / "home", launcher), Guess())
    monkeypatch.setattr(app, "client", lambda home: client)
    monkeypatch.setattr("typer.testing._get_command", verbs)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)
    lines = ["text,label", *(f"sentence {i},{'ab'[i % 2]}" for i in range(40))]
    (tmp_path / "data.csv").write_text("\n".join(lines))
    return lambda *arguments: CliRunner().invoke(main.app, [str(a) for a in arguments])
