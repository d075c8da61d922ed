"""What cannot be done now is tried again ever less often, and holds up nothing else."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest

from cluster.coordinator.retries import FIRST, LONGEST, Retries, pause_after
from cluster.domain.outcomes import Outcome
from cluster.domain.work import TrainWork, Work
from cluster.scheduler.state import Needs, Node
from cluster.storage.checkpoints import Checkpoints
from tests.support.fakes import ADMIN, FakeLauncher, FakeProcess, Scene, task_of


def test_pauses_double_up_to_the_longest() -> None:
    pauses = [pause_after(failures) for failures in range(1, 12)]
    assert pauses[:4] == pytest.approx([0.0, FIRST, 3 * FIRST, 7 * FIRST])
    assert pauses == sorted(pauses)
    assert pauses[-1] == pause_after(10**6) == LONGEST


def test_it_is_tried_as_often_as_the_pauses_say() -> None:
    now, tried = [0.0], list[float]()
    retries = Retries(clock=lambda: now[0])

    def fail() -> NoReturn:
        tried.append(now[0])
        raise OSError("the disk is full")

    for tick in range(3000):
        now[0] = tick * 0.2
        assert not retries.try_now(("do", "a"), fail)
        assert retries.try_now(("do", "b"), lambda: None)
    assert len(tried) < 20  # of 3000, in ten minutes
    assert max(b - a for a, b in itertools.pairwise(tried)) <= LONGEST + 0.2
    assert retries.trouble({"a", "b"}) == "OSError: the disk is full"
    assert retries.trouble({"b"}) is None
    assert retries.try_now(("do", "a"), lambda: None)  # what is owed no more is forgotten


class Refusing(FakeLauncher):
    """One task cannot be started; of another, nobody can say how it is."""

    def start(self, work: Work, needs: Needs) -> FakeProcess:
        if task_of(work) == "bad":
            raise OSError("no process can be made")
        return super().start(work, needs)

    def poll(self, handle: FakeProcess) -> Outcome | None:
        if task_of(handle.work) == "silent":
            raise OSError("nobody knows")
        return super().poll(handle)


def test_a_run_that_cannot_be_started_or_looked_at_holds_up_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(tmp_path, Node(4))
    scene.launcher.__class__ = Refusing
    for name in ("bad", "silent", "good"):
        scene.submit(name)
    assert scene.process("train", "good")
    for _ in range(50):
        scene.coordinator.tick()
    assert 2 < sum("Traceback" in (record.exc_text or "") for record in caplog.records) < 10
    assert "no process can be made" in str(scene.coordinator.status(ADMIN).trouble)
    scene.finish("train", "good")
    assert scene.ready() == ["good"]
    scene.launcher.__class__ = FakeLauncher
    scene.restart()
    scene.settle()
    assert scene.ready() == ["bad", "silent", "good"]
    assert scene.coordinator.status(ADMIN).trouble is None


class Blind(FakeLauncher):
    """It cannot look at all that runs at once."""

    def ended(self, handles: Mapping[str, FakeProcess]) -> NoReturn:
        raise OSError("no wait")


def test_a_look_that_fails_whole_is_in_the_log_now_and_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, now = Scene(tmp_path, Node(4)), [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def away() -> NoReturn:
        raise OSError("Ray does not answer")

    monkeypatch.setattr(scene.launcher, "nodes", away)
    for _ in range(300):  # a minute
        now[0] += 0.2
        scene.coordinator.tick()
    traces = sum("does not answer" in (record.exc_text or "") for record in caplog.records)
    assert 1 <= traces <= 1 + 60 // LONGEST
    assert "Ray does not answer" in str(scene.coordinator.status(ADMIN).trouble)


def test_each_run_is_looked_at_where_all_cannot_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(tmp_path, Node(4))
    scene.launcher.__class__ = Blind
    scene.submit("digits")
    for _ in range(50):
        scene.coordinator.tick()
    assert 0 < sum("no wait" in (record.exc_text or "") for record in caplog.records) < 10
    scene.settle()
    assert scene.ready() == ["digits"]


def test_checkpoints_are_deleted_without_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a bucket that takes seconds, in which runs ask what they are to see."""
    scene, answered = Scene(tmp_path), list[bool]()
    real = Checkpoints.clear

    def slow(checkpoints: Checkpoints) -> None:
        other = threading.Thread(target=scene.coordinator.cluster)
        other.start()
        other.join(5)
        answered.append(not other.is_alive())
        real(checkpoints)

    monkeypatch.setattr(Checkpoints, "clear", slow)
    scene.submit("digits")
    scene.finish("train")
    scene.coordinator.tick()
    assert answered == [True]


def test_a_run_that_begins_anew_waits_until_its_checkpoints_are_gone(tmp_path: Path) -> None:
    scene = Scene(tmp_path).trained("secret")
    scene.submit("digits")
    work = scene.process("train", "digits").work
    assert isinstance(work, TrainWork)
    scene.known(work.run_id, 0)
    old = scene.home.path / "checkpoints" / work.run_id / "1"
    old.mkdir(parents=True)
    scene.coordinator.remove(ADMIN, "secret", True)
    assert "train" not in [one.kind for one in scene.running()]
    scene.coordinator.tick()
    assert not old.exists()
    assert scene.process("train", "digits")
