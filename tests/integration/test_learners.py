"""The coordinator is killed on a real Ray cluster, and its learners go on without it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.domain.status import TaskStatus
from tests.integration.test_head import processes, until
from tests.stress.soak import OnRay, Stream, judged
from tests.support.fakes import ADMIN, asks, new_home, submission
from tests.support.places import ROOT

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]  # a machine that others use too


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnRay]:
    """Trainings of some seconds, also in groups of two."""
    home = new_home(tmp_path_factory.mktemp("learners") / "home")
    os.environ["TACL_TEST_STEP_SECONDS"] = "0.7"
    found = OnRay(home, "tests.support.grouped:Grouped", wide=2)
    del os.environ["TACL_TEST_STEP_SECONDS"]
    yield found
    if processes(home):
        found.stop()


def task(cluster: OnRay, name: str) -> TaskStatus:
    return next(one for one in cluster.ask("status", ADMIN).tasks if one.name == name)


def trains(cluster: OnRay, name: str, **options: Any) -> int:
    """Submit it; the pid of its learner, once it is under way."""
    asked = submission(cluster.home, name, refresh="never", **options)
    cluster.ask("submit", ADMIN, asked)
    until(lambda: (task(cluster, name).step or 0) > 1, f"{name} trains", 240)
    until(lambda: len(cluster.pids("learner")) == 1, "who did something before ends", 60)
    (learner,) = cluster.pids("learner")
    return learner


def kill_the_coordinator(cluster: OnRay) -> None:
    """The next one answers when this returns."""
    (old,) = cluster.pids("coordinator")
    os.kill(old, signal.SIGKILL)
    cluster.ask("status", ADMIN)
    assert cluster.pids("coordinator") not in ([old], [])


def deaths(cluster: OnRay, name: str) -> int:
    return [event.kind for event in cluster.ask("logs", ADMIN, name)].count("died")


def test_a_learner_goes_on_and_its_run_ends_by_one_attempt(cluster: OnRay) -> None:
    learner = trains(cluster, "digits")
    for _ in range(2):
        before = task(cluster, "digits").step or 0
        kill_the_coordinator(cluster)
        assert cluster.pids("learner") == [learner]
        until(lambda b=before: (task(cluster, "digits").step or 0) > b, "it goes on")
    assert cluster.pids("learner") == [learner]
    until(lambda: task(cluster, "digits").state == "ready", "it is published")
    assert (task(cluster, "digits").attempt, deaths(cluster, "digits")) == (1, 0)
    until(lambda: learner not in processes(cluster.home), "its process has ended")
    until(lambda: cluster.ask("cluster").free_cpus == 2, "its room is free")


@pytest.mark.nightly
def test_a_learner_goes_on_with_the_next_run_and_whoever_coordinates_finds_it(
    cluster: OnRay,
) -> None:
    """Of two that work, the two that wait have the processes; a group then needs all the room."""
    names = ("one", "two", "three", "four")
    for name in names:
        cluster.ask("submit", ADMIN, submission(cluster.home, name, refresh="never"))
    until(lambda: (task(cluster, "two").step or 0) > 1, "both work", 240)
    learners = set(cluster.pids("learner"))
    assert len(learners) == 2
    until(lambda: (task(cluster, "three").step or 0) > 1, "the next one works")
    kill_the_coordinator(cluster)
    assert set(cluster.pids("learner")) == learners
    until(lambda: all(task(cluster, name).state == "ready" for name in names), "all are there")
    assert set(cluster.pids("learner")) <= learners
    assert {task(cluster, name).attempt for name in names} == {1}
    assert {deaths(cluster, name) for name in names} == {0}
    leader = trains(cluster, "wide", workers=2)
    assert leader not in learners
    until(lambda: task(cluster, "wide").state == "ready", "it is published", 120)
    until(lambda: not cluster.pids("learner"), "nobody waits any more")
    until(lambda: cluster.ask("cluster").free_cpus == 2, "its room is free")


def test_a_learner_that_dies_while_the_coordinator_is_away_is_started_again(
    cluster: OnRay,
) -> None:
    learner = trains(cluster, "signs")
    (coordinator,) = cluster.pids("coordinator")
    for pid in (coordinator, learner):
        os.kill(pid, signal.SIGKILL)
    until(lambda: task(cluster, "signs").state == "ready", "it is published")
    assert (task(cluster, "signs").attempt, deaths(cluster, "signs")) == (2, 0)


@pytest.mark.nightly
def test_a_group_goes_on_and_is_cancelled_by_the_next_coordinator(cluster: OnRay) -> None:
    learner = trains(cluster, "faces", workers=2)
    workers = set(cluster.pids("worker"))
    assert len(workers) == 2
    before = task(cluster, "faces").step or 0
    kill_the_coordinator(cluster)
    until(lambda: (task(cluster, "faces").step or 0) > before, "it goes on")
    assert (cluster.pids("learner"), set(cluster.pids("worker"))) == ([learner], workers)
    cluster.ask("cancel", asks("cancel"), "faces", True)
    until(lambda: not {learner, *workers} & set(processes(cluster.home)), "the group has ended")
    until(lambda: cluster.ask("cluster").free_cpus == 2, "its room is free")
    assert (task(cluster, "faces").attempt, deaths(cluster, "faces")) == (1, 0)


def test_nothing_is_lost_doubled_or_wrong_and_no_learner_outlives_its_home(
    cluster: OnRay,
) -> None:
    stream = Stream(cluster, None)  # type: ignore[arg-type]  # no chance is taken
    stream.accepted = {one.name: one.run_id for one in cluster.ask("status", ADMIN).tasks}
    until(lambda: not cluster.ask("status", ADMIN).work, "all that is owed is done", 120)
    trains(cluster, "last")
    cluster.stop()  # asserts that no process of the home is left
    stream.removed = {"faces", "last"}  # which have no vector
    found = judged(cluster.home, stream)
    assert (found["lost"], found["wrong"]) == ([], [])


ALONE = """
import sys, time
import ray
from cluster.domain.work import MeasureWork
from cluster.runtime.actors import RayLauncher
from cluster.scheduler.state import ONE_CPU
from tests.support.fakes import BASE

ray.init(address="local", num_cpus=1, namespace="tacl", include_dashboard=False,
         log_to_driver=False, object_store_memory=100 << 20)
launcher = RayLauncher(sys.argv[1], "tests.integration.test_learners:Patient", lambda: None)
work = MeasureWork(run_id="run", base=BASE, pairs=(), attempt=1)
launcher.start(work, ONE_CPU)
assert launcher.learners() == [("run", 1)]
until = time.monotonic() + 60
while launcher.learners() or ray.available_resources().get("CPU") != 1:
    assert time.monotonic() < until, launcher.learners()
    time.sleep(0.2)
print("alone")
ray.shutdown()
"""


class Patient:
    """Works for ever; that a coordinator stays away for long is soon said."""

    def __init__(self, home: str) -> None:
        from cluster.runtime import connection, orphaned

        connection.RUN_SECONDS, orphaned.PERIOD = 1.0, 0.2

    def work(self, work: object) -> None:
        while True:
            time.sleep(1)


def test_a_learner_ends_when_no_coordinator_comes_back(tmp_path: Path) -> None:
    home = new_home(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", ALONE, str(home.path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.stdout.endswith("alone\n"), done.stderr[-3000:]
