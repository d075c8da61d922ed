"""What was served when a cluster was lost is served again, however often that fails at first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.serving import again
from cluster.storage.home import Home, Running, Serving, write
from tacl.errors import ClusterNotRunning

SERVING = Serving(host="127.0.0.1", port=8300, most=2, cpus=0.5, open_to_all=False, gpus=0.0)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.setattr(again, "PAUSE", 0.0)
    monkeypatch.setattr(again, "log_to", lambda *where: None)
    monkeypatch.setattr("sys.argv", ["again", str(tmp_path)])
    with (home := Home(tmp_path)).lock():  # as the head
        running(home)
        yield home


def running(home: Home, lost: str | None = None) -> None:
    write(home.running_file, Running(pid=os.getpid(), address="", token=None, lost=lost))


def test_it_is_tried_until_it_is_served(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Serving] = []

    def start(of: Home, how: Serving, say: object) -> None:
        asked.append(how)
        if len(asked) < 3:
            raise (ClusterNotRunning("not yet"), RuntimeError("the port is taken"))[len(asked) - 1]

    monkeypatch.setattr(again, "start", start)
    write(home.serving_file, SERVING)
    again.main()
    assert asked == [SERVING] * 3


def test_what_was_stopped_meanwhile_stays_stopped(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(of: Home, how: Serving, say: object) -> None:
        of.serving_file.unlink()
        raise ClusterNotRunning("not yet")

    monkeypatch.setattr(again, "start", start)
    write(home.serving_file, SERVING)
    again.main()
    assert home.serving() is None


def test_it_waits_for_a_cluster_that_is_being_started(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        running(home, lost=None if len(waited) == 3 else "the raylet")

    def start(of: Home, how: Serving, say: object) -> None:
        assert len(waited) == 3

    running(home, lost="the raylet")
    monkeypatch.setattr(again.time, "sleep", sleep)
    monkeypatch.setattr(again, "start", start)
    write(home.serving_file, SERVING)
    again.main()
    assert waited == [again.WAIT] * 3
