"""Processes are killed for real, on a Ray cluster of this machine; the long form is `make soak`."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.home import Home
from cluster.plan import DEATHS
from cluster.remote import ask, leave
from tests.cluster.fakes import new_home, submission
from tests.cluster.test_head import pids, processes, start_head, until
from tests.soak import Killer, Stream, judged, settled

QUICK = "tests.quick:Quick"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A cluster whose processes die at the steps that have a file in `dies`."""
    home = new_home(tmp_path / "home")
    (home.path / "dies").mkdir()
    with monkeypatch.context() as environment:
        environment.setenv("TACL_DIES_IN", str(home.path / "dies"))
        head = start_head(home, learner=QUICK)
    try:
        until(home.running, "the head is ready", 200)
        yield home
    finally:
        leave(home)
        head.send_signal(signal.SIGTERM)
        head.communicate(timeout=120)
        until(lambda: not processes(home), "nothing is left running", 60)


def task(home: Home, name: str) -> dict[str, Any]:
    return next(one for one in ask(home, "status")["tasks"] if one["name"] == name)


def test_a_run_that_keeps_dying_stops_and_is_retried(home: Home) -> None:
    ask(home, "submit", submission(home, "digits"))
    for death in range(1, DEATHS + 2):
        until(lambda n=death: trains(home, attempt=n), f"attempt {death} trains")
        (learner,) = pids(home, "LearnerProcess")
        os.kill(learner, signal.SIGKILL)
    until(lambda: task(home, "digits")["state"] == "failed", "the budget is spent")
    assert "its process was lost 3 times" in task(home, "digits")["reason"]
    assert ask(home, "cluster")["free_cpus"] == 2
    ask(home, "retry", "digits")
    until(lambda: task(home, "digits")["state"] == "ready", "it is trained after all")
    assert task(home, "digits")["attempt"] == DEATHS + 2


def trains(home: Home, attempt: int) -> bool:
    found = task(home, "digits")
    return found["attempt"] == attempt and bool(found["step"]) and found["state"] == "training"


def test_a_training_is_cancelled_for_real(home: Home) -> None:
    ask(home, "submit", submission(home, "digits"))
    until(lambda: trains(home, attempt=1), "it trains")
    ask(home, "cancel", "digits", "cancel")
    until(lambda: not pids(home, "LearnerProcess"), "its process is gone")
    assert task(home, "digits")["state"] == "cancelled"
    assert ask(home, "cluster")["free_cpus"] == 2


@pytest.mark.timeout(600)
def test_random_kills_and_deaths_at_steps_lose_nothing(home: Home) -> None:
    chance = random.Random(1)
    stream, killer = Stream(home, chance), Killer(home, home.path / "dies", chance)
    for step in ("registry accept committed", "registry publish written", "checkpoint written"):
        (home.path / "dies" / step).touch()
        killer.armed.add(step)
    stream.submit()
    stream.submit()
    until(lambda: stream.ready() and killer.count() == 3, "they died at their steps")
    while killer.count() < 6:
        stream.act()
        killer.kill()
    killer.disarm()
    until(lambda: settled(stream), "all that is owed is done", 180)
    assert not stream.wrong
    os.kill(pids(home, "WatchedCoordinator")[0], signal.SIGKILL)
    assert len(stream.ready()) >= 1  # of the next coordinator
    assert judged(home, stream) == {"lost": [], "doubled": [], "wrong": []}
