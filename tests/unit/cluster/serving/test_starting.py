"""A server that starts, or does not; Serve itself is made up."""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from ray import serve

from cluster.serving import awaited as waiting
from cluster.serving import starting as module
from cluster.storage.home import Home, Running, Serving
from tacl.errors import BadConfig, NotPlaceable

ASKED = Serving(host="127.0.0.1", port=8300, most=1, cpus=1, gpus=0, open_to_all=False)


@pytest.fixture
def starting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done of Serve, which does not run yet."""
    done: list[str] = []
    monkeypatch.setattr(module, "connect", lambda home: None)
    monkeypatch.setattr(module, "application", lambda arguments: None)
    monkeypatch.setattr(serve, "status", lambda: SimpleNamespace(proxies={}))
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    for step in ("start", "run", "shutdown"):
        do = lambda *given, step=step, **named: done.append(step)  # noqa: E731
        monkeypatch.setattr(serve, step, do)
    return done


def test_ray_tells_the_terminal_nothing_of_a_server_that_starts(
    tmp_path: Path, starting: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger, told = logging.getLogger("ray.serve"), []
    monkeypatch.setattr(logger, "level", logging.INFO)  # as Serve sets it when it is imported
    for step in ("start", "run"):
        tell = lambda *given, **named: told.append(logger.getEffectiveLevel())  # noqa: E731
        monkeypatch.setattr(serve, step, tell)
    assert module.start(Home(tmp_path), ASKED) == "http://127.0.0.1:8300"
    assert told == [logging.WARNING, logging.WARNING]


def test_the_address_of_a_server_is_one(tmp_path: Path, starting: list[str]) -> None:
    asked = ASKED.model_copy(update={"host": "::1"})
    assert module.start(Home(tmp_path), asked) == "http://[::1]:8300"


def one_machines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    running = Running(pid=os.getpid(), address="127.0.0.1:6379", token="")
    monkeypatch.setattr(Home, "running", lambda home: running)
    return Home(folder)


@pytest.mark.parametrize(
    ("more", "why"),
    [({"gpus": 0.5}, "0.5 GPUs, and this cluster has 0"), ({"cpus": 3}, "3 CPUs.*cpus 2")],
)
def test_a_predictor_that_never_fits_is_not_waited_for(
    more: dict[str, float], why: str, tmp_path: Path, starting: list[str], monkeypatch
) -> None:
    home = one_machines(tmp_path, monkeypatch)
    with pytest.raises(NotPlaceable, match=why):
        module.start(home, ASKED.model_copy(update=more))
    assert not starting


def test_who_waits_for_a_server_hears_for_what_and_for_how_long(
    tmp_path: Path, starting: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where trainings have all CPUs."""
    told, heard, free = list[str](), threading.Semaphore(0), {"a": {}, "b": {"CPU": 0.5}}
    monkeypatch.setattr(waiting, "FIRST", 0.01)
    monkeypatch.setattr(waiting, "held_by", lambda are_meant: {})
    monkeypatch.setattr(waiting, "available_resources_per_node", lambda: free)

    def run(*_: object, **__: object) -> None:
        assert heard.acquire(timeout=10)
        free["a"] = {"CPU": 1.0}
        assert heard.acquire(timeout=10)

    def say(line: str) -> None:
        told.append(line)
        heard.release()

    monkeypatch.setattr(serve, "run", run)
    module.start(Home(tmp_path), ASKED, say)
    assert told[0] == "waited 0 s for a run to end (tacl status): no node has 1 CPU free"
    assert told[-1] == "waited 0 s for a predictor to load the base model"


def test_a_predictor_that_has_its_place_waits_for_no_room() -> None:
    asked = ASKED.model_copy(update={"gpus": 0.5})
    said = waiting.awaited(asked, False, [{"CPU": 9.0}], 70.4)
    assert said.endswith("no node has 1 CPU and 0.5 GPU free")
    assert "to load the base" in waiting.awaited(asked, True, [{"CPU": 0.0}], 70.4)


def test_a_port_is_shared_with_no_other_server(tmp_path: Path, starting, monkeypatch) -> None:
    """Which Serve of another home would let happen."""
    monkeypatch.setattr(module, "ENDING", 0.0)
    home = one_machines(tmp_path, monkeypatch)
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as other:
        asked = ASKED.model_copy(update={"port": other.getsockname()[1]})
        with pytest.raises(BadConfig, match="Address already in use. Where another program"):
            module.start(home, asked)
    with pytest.raises(BadConfig, match="port must be 0-65535"):
        module.start(home, ASKED.model_copy(update={"port": 83_000}))
    assert (starting, home.serving()) == ([], None)
    module.start(home, asked)
    assert (starting, home.serving()) == (["start", "run"], asked)


def test_a_server_that_did_not_start_keeps_no_address(tmp_path, starting, monkeypatch) -> None:
    def broken_off(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    run = serve.run
    monkeypatch.setattr(serve, "run", broken_off)
    with pytest.raises(KeyboardInterrupt):
        module.start(Home(tmp_path), ASKED)
    assert starting == ["start", "shutdown"]
    monkeypatch.setattr(serve, "run", run)
    module.start(Home(tmp_path), ASKED)
    monkeypatch.setattr(serve, "run", broken_off)
    with pytest.raises(KeyboardInterrupt):  # what answers goes on
        module.start(Home(tmp_path), ASKED.model_copy(update={"most": 2}))
    assert starting == ["start", "shutdown", "start", "run", "start"]


def test_a_server_of_which_no_note_could_be_kept_does_not_go_on(
    tmp_path: Path, starting: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk: nobody would know where it is."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, "write", full)
    with pytest.raises(OSError, match="No space left"):
        module.start(Home(tmp_path), ASKED)
    assert starting == ["start", "run", "shutdown"]
