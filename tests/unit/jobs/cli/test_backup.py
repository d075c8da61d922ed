"""`tacl backup` and `tacl restore`, as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.errors import exit_code
from jobs.cli import main
from tacl.errors import BadConfig, DataNotFound, HomeInUse
from tests.support.fakes import Scene


def test_there_and_back(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "home").trained("digits")
    run = CliRunner().invoke
    home, kept, new = (str(tmp_path / name) for name in ("home", "kept", "a new one"))
    done = run(main.app, ["backup", kept, "--home", home])
    assert done.exit_code == 0, done.output
    assert "1 tasks and" in done.stdout
    assert (
        json.loads(run(main.app, ["backup", kept, "--home", home, "--json"]).stdout)["copied"] == 0
    )
    done = run(main.app, ["restore", kept, new])
    assert done.exit_code == 0, done.output
    assert f"tacl up --home '{new}'\n" in done.stdout
    assert run(main.app, ["restore", kept, home]).exit_code == exit_code(HomeInUse(""))
    refused = run(main.app, ["restore", new, f"{new}2"])
    assert refused.exit_code == exit_code(DataNotFound(""))
    assert f"make one: tacl backup '{new}'\n" in refused.stderr
    scene.coordinator.close()


def test_a_place_without_a_name_is_refused_and_is_not_the_folder_one_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a variable that is not set: of `up` it would be the storage of a home for ever."""
    scene, here = Scene(tmp_path / "home").trained("digits"), tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    run = CliRunner().invoke
    assert run(main.app, ["backup", "../kept", "--home", "../home"]).exit_code == 0
    for words in (
        ["backup", "", "--home", "../home"],
        ["restore", "", "new"],
        ["restore", "../kept", "new", "--storage", ""],
        ["up", "--base", "embedded", "--storage", "", "--home", "new"],
    ):
        done = run(main.app, words)
        assert done.exit_code == exit_code(BadConfig()), done.output
        assert "no place is named" in done.stderr
    assert [*here.iterdir()] == []
    scene.coordinator.close()
