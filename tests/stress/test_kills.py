"""Processes are killed for real, on a Ray cluster of this machine; the long form is `make soak`."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator

import pytest

from cluster.domain.base import RequestContext
from cluster.domain.status import TaskStatus
from cluster.scheduler.plan import DEATHS
from tests.integration.test_head import processes, until
from tests.stress.soak import Killer, OnRay, Stream, judged, settled
from tests.support.fakes import ADMIN, asks, new_home, submission

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]  # a machine that others use too


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnRay]:
    """One for all tests of this file, with what the earlier ones left."""
    found = OnRay(new_home(tmp_path_factory.mktemp("kills") / "home"))
    yield found
    if processes(found.home):
        found.stop()


def task(cluster: OnRay, name: str) -> TaskStatus:
    return next(one for one in cluster.ask("status", ADMIN).tasks if one.name == name)


@pytest.mark.nightly
def test_a_run_that_keeps_dying_stops_and_is_retried(cluster: OnRay) -> None:
    cluster.ask("submit", ADMIN, submission(cluster.home, "digits", refresh="never"))
    for death in range(1, DEATHS + 2):
        until(lambda n=death: trains(cluster, "digits", attempt=n), f"attempt {death} trains")
        (learner,) = until(lambda: cluster.pids("learner"), "its process is there")
        os.kill(learner, signal.SIGKILL)
    until(lambda: task(cluster, "digits").state == "failed", "the budget is spent")
    assert "it was tried 3 times" in str(task(cluster, "digits").reason)
    assert cluster.ask("cluster").free_cpus == 2
    cluster.ask("retry", RequestContext(), "digits")
    until(lambda: task(cluster, "digits").state == "ready", "it is trained after all")
    assert task(cluster, "digits").attempt == DEATHS + 2


def trains(cluster: OnRay, name: str, attempt: int) -> bool:
    found = task(cluster, name)
    return found.attempt == attempt and bool(found.step) and found.state == "training"


def test_a_training_is_cancelled_for_real(cluster: OnRay) -> None:
    cluster.ask("submit", ADMIN, submission(cluster.home, "signs", refresh="never"))
    until(lambda: trains(cluster, "signs", attempt=1), "it trains")
    cluster.ask("cancel", asks("cancel"), "signs", True)
    until(lambda: not cluster.pids("learner"), "its process is gone")
    assert task(cluster, "signs").state == "cancelled"
    assert cluster.ask("cluster").free_cpus == 2


def test_random_kills_on_ray_lose_nothing(cluster: OnRay) -> None:
    chance = random.Random(1)
    stream, killer = Stream(cluster, chance), Killer(cluster, chance)
    stream.accepted = {one.name: one.run_id for one in cluster.ask("status", ADMIN).tasks}
    for step in ("registry accept committed", "registry publish written", "checkpoint written"):
        (killer.folder / step).touch()
        killer.armed.add(step)
    stream.submit()
    stream.submit()
    until(lambda: stream.ready() and killer.count() == 3, "they died at their steps", 180)
    while killer.count() < 6:
        stream.act()
        killer.kill()
    killer.disarm()
    until(lambda: settled(stream), "all that is owed is done", 180)
    assert len(stream.ready()) >= 2
    cluster.stop()
    assert judged(cluster.home, stream) == {"lost": [], "doubled": [], "wrong": []}
