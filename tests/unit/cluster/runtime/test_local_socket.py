"""A coordinator that is asked on its own machine: answers, errors, and what Ray is left to do."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from cluster.domain.base import RequestContext
from cluster.runtime import local_socket
from tacl.errors import UnknownTask


@pytest.fixture
def home() -> Iterator[Path]:
    """With a short name, as a socket needs."""
    with tempfile.TemporaryDirectory(prefix="near") as folder:
        yield Path(folder)


def answer(method: str, arguments: Sequence[object]) -> Any:
    if method == "task":
        raise UnknownTask("no task is named x")
    if method == "broken":
        raise ZeroDivisionError
    return method, *arguments


def test_answers_and_errors_arrive_as_they_are(home: Path) -> None:
    local_socket.listen(home, answer)
    context = RequestContext(user="ann")
    assert local_socket.ask(home, "status", [context]) == ("status", context)
    with pytest.raises(UnknownTask, match="no task is named x"):
        local_socket.ask(home, "task", [context, "x"])
    with pytest.raises(local_socket.NoListener):  # a defect: Ray's answer says where
        local_socket.ask(home, "broken", [])
    assert local_socket.ask(home, "cluster", []) == ("cluster",)
    assert (home / local_socket.SOCKET).stat().st_mode & 0o077 == 0


def test_many_ask_at_once(home: Path) -> None:
    local_socket.listen(home, answer)
    found: list[Any] = []
    asking = [
        threading.Thread(target=lambda n=n: found.append(local_socket.ask(home, "run", [n])))
        for n in range(20)
    ]
    for one in asking:
        one.start()
    for one in asking:
        one.join()
    assert sorted(found) == [("run", n) for n in range(20)]


def test_a_coordinator_that_is_gone_is_not_near(home: Path) -> None:
    with pytest.raises(local_socket.NoListener):
        local_socket.ask(home, "status", [])
    with socket.socket(socket.AF_UNIX) as dead:  # of one that was killed
        dead.bind(str(home / local_socket.SOCKET))
    with pytest.raises(local_socket.NoListener):
        local_socket.ask(home, "status", [])
    local_socket.listen(home, answer)  # the next one takes its place
    assert local_socket.ask(home, "status", []) == ("status",)


def test_processes_that_begin_at_the_same_moment_hinder_none(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those that take a server's requests do; the last one answers."""
    monkeypatch.setattr(local_socket.os, "getpid", threading.get_ident)
    begin, failed = threading.Barrier(8), list[Exception]()

    def listen() -> None:
        begin.wait()
        try:
            local_socket.listen(home, answer)
        except Exception as error:
            failed.append(error)

    for _ in range(5):
        beginning = [threading.Thread(target=listen) for _ in range(8)]
        for one in beginning:
            one.start()
        for one in beginning:
            one.join()
        assert local_socket.ask(home, "status", []) == ("status",)
    assert not failed
    assert [path.name for path in home.iterdir()] == [local_socket.SOCKET]


def test_a_home_with_a_long_path_is_asked_through_ray(home: Path) -> None:
    deep = home / ("x" * 120)
    deep.mkdir()
    local_socket.listen(deep, answer)
    assert list(deep.iterdir()) == []
    with pytest.raises(local_socket.NoListener):
        local_socket.ask(deep, "status", [])


def test_somebody_who_is_stopped_listens(home: Path) -> None:
    """Also where so many wait for it that no more may: nobody waits to hear it."""
    assert not local_socket.answers(home)
    with socket.socket(socket.AF_UNIX) as stopped, ExitStack() as waiting:
        stopped.bind(str(home / local_socket.SOCKET))
        stopped.listen(1)
        with suppress(BlockingIOError):
            while True:
                asking = waiting.enter_context(socket.socket(socket.AF_UNIX))
                asking.setblocking(False)
                asking.connect(str(home / local_socket.SOCKET))
        assert local_socket.answers(home)
    assert not local_socket.answers(home)


def test_who_has_no_descriptors_left_waits_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """And takes no processor meanwhile."""
    waited, answers = list[float](), iter([OSError(24, "too many"), OSError(24, "too many")])

    class Full:
        def accept(self) -> NoReturn:
            raise next(answers, KeyboardInterrupt())

    monkeypatch.setattr(local_socket, "time", SimpleNamespace(sleep=waited.append))
    with pytest.raises(KeyboardInterrupt):
        local_socket._accept(cast(socket.socket, Full()), answer)
    assert waited == [0.1, 0.1]
