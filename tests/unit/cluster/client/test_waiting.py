"""Loops that wait for a cluster, which may start itself again meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.client import waiting
from cluster.client.client import Client
from cluster.client.waiting import through_restarts
from jobs.console import live
from tacl.errors import ClusterNotRunning, StorageUnavailable, TaclError, UnknownTask
from tests.support.fakes import new_home
from tests.support.instant import Guess, InProcess, Instant


class Lost:
    """Calls, each of which fails with the next of these errors, or is answered where it is None."""

    def __init__(self, *faults: TaclError | None) -> None:
        self.faults = [*faults]

    def __call__(self) -> str:
        if self.faults and (error := self.faults.pop(0)) is not None:
            raise error
        return "answered"


def test_a_cluster_that_was_there_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    gone, full = ClusterNotRunning("started again"), StorageUnavailable("no room")
    look = through_restarts(Lost(None, gone, full, gone, None, gone))
    assert [look() for _ in range(3)] == ["answered"] * 3
    assert [one.getMessage() for one in caplog.records] == [
        f"started again; asking again for up to {waiting.RESTARTING:g} s"
    ] * 2  # once for each time that it was lost


def test_what_waiting_does_not_change_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = ClusterNotRunning("no cluster")
    with pytest.raises(ClusterNotRunning):
        through_restarts(Lost(gone))()  # it was never there
    look = through_restarts(Lost(None, UnknownTask("x")))
    look()
    with pytest.raises(UnknownTask):
        look()
    late = through_restarts(Lost(None, gone), until=0.0)
    late()
    with pytest.raises(ClusterNotRunning):
        late()
    monkeypatch.setattr(waiting, "RESTARTING", 0.0)
    look = through_restarts(Lost(None, gone))
    look()
    with pytest.raises(ClusterNotRunning):
        look()


@pytest.fixture
def client(tmp_path: Path) -> Client:
    coordinator = InProcess(tmp_path / "home", Instant(home=new_home(tmp_path / "home")))
    return Client(tmp_path / "home", coordinator=coordinator, predictor=Guess())


def test_every_wait_outlasts_a_restart(
    client: Client, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(method: str, answers: list[Any]) -> None:
        """Before it answers, the coordinator first gives `answers`; an error is raised."""
        real: Callable[..., Any] = getattr(client.coordinator, method)

        def call(*given: Any) -> Any:
            found = answers.pop(0) if answers else real(*given)
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(client.coordinator, method, call)

    gone = ClusterNotRunning("started again")
    client.submit("one", data)
    early = client.coordinator.status(client.context(), "", ("one",))
    owed = early.tasks[0].model_copy(update={"state": "training"})
    lose("status", [early.model_copy(update={"tasks": (owed,)}), gone])
    assert client.wait("one", poll=0).tasks[0].state == "ready"
    client.compose("ann", ["+one"])
    lose("evaluation", [None, gone])
    assert client.evaluate("ann").absolute > 0
    asked = client.start_composition("ann", ["+one"], "ties")
    run = client.composition_run("ann", asked.run_id)
    lose("composition_run", [run.model_copy(update={"state": "running"}), gone])
    assert client.wait_composition("ann", asked.run_id).model is not None


def test_a_live_view_outlasts_a_restart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(live, "lines", lambda console: lambda found: print(found))
    monkeypatch.setattr(live.time, "sleep", lambda seconds: None)
    look: Any = Lost(None, ClusterNotRunning("started again"), None, UnknownTask("the end"))
    with pytest.raises(UnknownTask):
        live.watch(look)
    assert capsys.readouterr().out == "answered\n" * 2
