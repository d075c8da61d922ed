"""The file that `tacl init` writes and `up` reads."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from cluster.client.client import Client
from cluster.runtime import config
from cluster.storage.home import ANSWERS, Home
from tacl.errors import BadConfig, ClusterNotRunning, DataNotFound
from tests.support.fakes import new_home


def test_what_was_told_is_read_again(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert config.read(home) == config.Config()
    told = config.Config(base='hf:a "quoted" \\ name', generic="/data/ä 😀", cpus=3)
    config.write(home, told)
    assert config.read(home) == told


def test_what_was_told_need_not_be_said_again_to_found_the_home(tmp_path: Path) -> None:
    home = Home(tmp_path / "a home")
    with pytest.raises(ClusterNotRunning, match=f"tacl up --home '{home.path}' --base SPEC, or"):
        home.founded()
    config.write(home, config.Config(base="embedded"))
    with pytest.raises(ClusterNotRunning, match=f"tacl up --home '{home.path}', or"):
        home.founded()


@pytest.mark.parametrize("text", ["cpus = 0", "cpus = many", "bases = 'embedded'", "cpus = 'x'"])
def test_what_a_person_wrote_wrong_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / ANSWERS).write_text(text)
    with pytest.raises(BadConfig, match=ANSWERS):
        config.read(Home(tmp_path))


def test_a_file_is_no_home(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadConfig, match="file is a file, and a home is a folder; name another"):
        config.read(Home(tmp_path / "file"))


def test_a_home_that_is_there_is_not_told_anew(tmp_path: Path) -> None:
    home = new_home(tmp_path / "home")
    with pytest.raises(BadConfig, match="is a home already"):
        config.write(home, config.Config(base="fake:encoder"))


def test_answers_that_cannot_be_written_leave_those_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, before = Home(tmp_path), config.Config(base="embedded", cpus=2)
    config.write(home, before)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    for base in ("hf:encoder", "hf:\udcff"):  # and of a path that is no text
        with pytest.raises((OSError, UnicodeEncodeError)):
            config.write(home, config.Config(base=base))
        assert config.read(home) == before


def test_what_init_is_told_is_the_same_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "encoder").mkdir()
    monkeypatch.chdir(tmp_path)
    client = Client(tmp_path / "home")
    client.init("hf:encoder", "some/texts")
    assert config.read(client.home).base == f"hf:{tmp_path}/encoder"
    with pytest.raises(DataNotFound, match=r"text\.csv"):
        client.init("hf:encoder", "text.csv")


def test_up_takes_what_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr("cluster.runtime.launch.start", lambda *given: asked.append(given))
    client = Client(tmp_path / "home")
    (tmp_path / "rows.csv").write_text("text\na\n")
    monkeypatch.chdir(tmp_path)
    client.init("hf:some/encoder", "rows.csv", 2)
    client.up()
    client.up(cpus=1)
    client.up(address="head:6379")
    (_, first, *_), *_ = asked
    assert (first.base, first.generic) == ("hf:some/encoder", str(tmp_path / "rows.csv"))
    # a flag comes first, and a cluster that is joined has the CPUs that it has
    assert [cpus for _, _, cpus, *_ in asked] == [2, 1, None]
    with pytest.raises(BadConfig, match="generic"):
        Client(tmp_path / "other").init("hf:some/encoder")
