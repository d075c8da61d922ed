"""What the registry alone can answer is read by who asks, though the coordinator is stopped or
dead; what cannot be read, and what is decided, is asked of the coordinator."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

import pytest

from cluster.client.client import Client
from cluster.domain.base import RequestContext
from cluster.registry import dialects
from cluster.runtime import local_socket, own_reader
from cluster.runtime.home_coordinator import HomeCoordinator
from cluster.runtime.restart import HEAD
from cluster.storage.home import Home, Running, write
from tacl.errors import ClusterNotRunning, StorageUnavailable, UnknownTask
from tests.support.fakes import Scene, asks
from tests.support.silent import silent

RUNNING = Running(pid=os.getpid(), address="127.0.0.1:1", token=None)
ANN = RequestContext(user="ann")
SECRET = "ann.secret"


class Coordinating:
    """Who listens for a home's coordinator. `asked`: methods, which it answers with their names."""

    def __init__(self, is_stopped: bool) -> None:
        self.asked, self._goes_on = list[str](), threading.Event()
        if not is_stopped:
            self._goes_on.set()

    def __call__(self, method: str, arguments: Sequence[object]) -> str:
        self.asked.append(method)
        self._goes_on.wait(60)
        return f"told: {method}"


@contextmanager
def served(home: Home, running: Running = RUNNING) -> Iterator[None]:
    """Its cluster runs."""
    with home.lock():
        write(home.running_file, running)
        yield


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    found = Scene(tmp_path).trained("a", "b")
    found.submit(SECRET, owner="ann", private=True)
    found.coordinator.compose(asks("compose"), "ann", ["+a"])
    with served(found.home):
        yield found
    found.coordinator.close()


@pytest.fixture
def stopped(scene: Scene) -> Coordinating:
    return listening(scene, is_stopped=True)


def listening(scene: Scene, is_stopped: bool = False) -> Coordinating:
    found = Coordinating(is_stopped)
    local_socket.listen(scene.home.path, found)
    return found


def names(client: Client) -> set[str]:
    return {one.task for one in client.vectors()}


@pytest.mark.timeout(60)  # a coordinator that is stopped was waited for
def test_what_is_read_is_answered_while_the_coordinator_is_stopped(
    scene: Scene, stopped: Coordinating
) -> None:
    """Under the view of who asks, and with the same errors."""
    ann, bob = (Client(scene.home.path, user=user) for user in ("ann", "bob"))
    assert names(bob) == {"a", "b"}
    assert bob.composition("ann") == scene.coordinator.composition(ANN, "ann")
    assert [*ann.logs(SECRET)] == [*scene.coordinator.logs(ANN, SECRET)]
    with pytest.raises(UnknownTask):
        bob.logs(SECRET)
    assert [one.user for one in bob.usage()] == [one.user for one in scene.coordinator.usage()]
    made = scene.coordinator.compose(asks("again"), "ann", ["+b"])
    assert bob.composition("ann") == made
    assert stopped.asked == []


def test_what_is_decided_is_asked_of_the_coordinator(scene: Scene) -> None:
    """And whose a token is: that it was used is written down."""
    there = listening(scene)
    coordinator = HomeCoordinator(scene.home)
    for method in ("status", "holder", "holders"):
        assert getattr(coordinator, method)([]) == f"told: {method}"
    assert there.asked == ["status", "holder", "holders"]


def test_where_no_cluster_runs_nothing_is_read(tmp_path: Path) -> None:
    scene = Scene(tmp_path).trained("a")
    listening(scene)
    client = Client(tmp_path)
    with pytest.raises(ClusterNotRunning, match="no cluster serves"):
        client.vectors()
    with served(scene.home):
        assert names(client) == {"a"}
    with pytest.raises(ClusterNotRunning, match="no cluster serves"):
        client.vectors()
    again = RUNNING.model_copy(update={"lost": "Ray was lost"})
    with served(scene.home, again), pytest.raises(ClusterNotRunning, match="started again"):
        client.vectors()
    scene.coordinator.close()


def test_a_coordinator_that_is_dead_is_not_waited_for(scene: Scene) -> None:
    """Its head lives, and starts another one: on this machine the SQLite file is as it is."""
    head = subprocess.Popen(
        [sys.executable, "-c", "input()", HEAD[-1]], stdin=subprocess.PIPE, text=True
    )
    try:
        write(scene.home.running_file, RUNNING.model_copy(update={"pid": head.pid}))
        assert names(Client(scene.home.path)) == {"a", "b"}
    finally:
        head.communicate("\n")


@pytest.mark.timeout(30)  # a server that is silent was waited for
@pytest.mark.parametrize("where", ["another machine", "no server", "silent", "lets in"])
def test_where_it_cannot_be_read_the_coordinator_is_asked(
    where: str, scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is said of it: nothing is wrong, and it is answered."""
    there = listening(scene)
    monkeypatch.setattr(own_reader, "AGAIN", 0.0)
    monkeypatch.setattr(dialects, "TIMEOUT", 0.1)
    away = nullcontext("postgresql://nobody@127.0.0.1:1/x")
    with away if where == "no server" else silent(where == "lets in") as url:
        if where == "another machine":
            monkeypatch.setattr(local_socket, "answers", lambda home: False)
        else:
            monkeypatch.setattr(Home, "registry_url", property(lambda home: url))
        assert HomeCoordinator(scene.home).tokens() == "told: tokens"
    assert there.asked == ["tokens"]
    assert not caplog.records


def test_while_it_cannot_be_read_nobody_waits_for_it_anew(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, looks = listening(scene), list[object]()

    def away(*asked: object) -> NoReturn:
        looks.append(asked)
        raise StorageUnavailable("no answer in time")

    monkeypatch.setattr(own_reader, "Reader", away)
    coordinator = HomeCoordinator(scene.home)
    for _ in range(3):
        coordinator.tokens()
    assert (len(looks), len(there.asked)) == (1, 3)


@pytest.mark.timeout(60)
def test_many_threads_read_at_once(scene: Scene, stopped: Coordinating) -> None:
    """More than the registry is given connections, with one client."""
    client = Client(scene.home.path, user="bob")
    with ThreadPoolExecutor(30) as threads:
        found = [*threads.map(lambda _: names(client), range(60))]
    assert found == [{"a", "b"}] * 60
    assert stopped.asked == []


@pytest.mark.timeout(60)
def test_a_process_that_was_forked_reads_by_itself(scene: Scene, stopped: Coordinating) -> None:
    """While a thread of its parent was in the middle of a look, which holds a lock."""
    client = Client(scene.home.path, user="bob")
    assert names(client) == {"a", "b"}
    (kept,) = client.coordinator._kept.values()  # type: ignore[attr-defined]
    told: Any = multiprocessing.get_context("fork").Queue()
    process = multiprocessing.get_context("fork").Process
    child = process(target=lambda: told.put(names(client)), daemon=True)
    with kept[1]._opening, kept[1]._reader._lock:
        child.start()
    assert told.get(timeout=20) == {"a", "b"}
    child.join()
    assert child.exitcode == 0
    scene.trained("c")
    assert names(client) == {"a", "b", "c"}
    assert stopped.asked == []


def test_another_cluster_is_read_anew(scene: Scene, stopped: Coordinating, tmp_path: Path) -> None:
    """As of a home that was restored meanwhile: its registry is another file."""
    client = Client(scene.home.path, user="bob")
    assert names(client) == {"a", "b"}
    other = Scene(tmp_path / "other").trained("other")
    other.coordinator.close()
    scene.coordinator.close()
    for path in scene.home.path.glob("registry.sqlite*"):
        path.unlink()
    (other.home.path / "registry.sqlite").rename(scene.home.path / "registry.sqlite")
    write(scene.home.running_file, RUNNING.model_copy(update={"address": "127.0.0.1:2"}))
    assert names(client) == {"other"}


def test_who_asks_imports_nothing_heavy(scene: Scene) -> None:
    """Nor SQLAlchemy, unless the registry is read."""
    listening(scene)
    heavy = {"ray", "pyarrow", "numpy", "torch"}
    for ask, brought in (
        ("cluster()", "set()"),
        ("logs('a')[0].kind, len(client.vectors())", "{'sqlalchemy'}"),
    ):
        code = (
            f"import sys; from cluster.client.client import Client\n"
            f"client = Client({str(scene.home.path)!r})\n"
            f"print(client.{ask})\n"
            f"print({heavy | {'sqlalchemy'}} & sys.modules.keys())"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[1:] == [brought]
