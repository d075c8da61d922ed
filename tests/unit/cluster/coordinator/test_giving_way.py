"""A refresh that nobody waits for gives way to what somebody does, and is no worse for it; so does
a training of a user who took their minutes of the day.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cluster.coordinator import executor
from cluster.domain.outcomes import GaveWay
from cluster.domain.status import RunState
from cluster.domain.work import Lease, Progress
from cluster.scheduler.giving_way import MOST
from cluster.scheduler.state import Node
from cluster.storage.checkpoints import checkpoints, runs
from tests.support.fakes import ADMIN, Scene, asks, loud, submission
from tests.support.kept import newest


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """One CPU, on which a refresh runs."""
    scene = Scene(tmp_path, Node(1), tau=loud)
    scene.trained("digits")
    scene.coordinator.compose(asks("compose"), "alice", ["+digits"])
    scene.arrive("shapes", refresh="never")
    while scene.running()[0].kind == "measure":
        scene.finish("measure")
    assert [work.kind for work in scene.running()] == ["refresh"]
    return scene


def tell(scene: Scene) -> bool:
    work = scene.process("refresh").work
    step = Progress(step=3, steps=9, loss=0.5)
    return scene.coordinator.report_progress(work.run_id, step, work.attempt)


def test_it_is_told_to_and_queued_again_without_a_loss(scene: Scene) -> None:
    run_id = scene.process("refresh").work.run_id
    assert tell(scene) is False
    scene.coordinator.evaluate(asks("evaluate"), "alice")
    assert tell(scene) is True
    scene.end(GaveWay(), "refresh")
    assert [work.kind for work in scene.running()] == ["evaluate"]
    waiting = scene.coordinator._registry.run(run_id)
    assert (waiting.state, waiting.deaths, waiting.cause) == (RunState.QUEUED, 0, None)
    told = scene.coordinator.run(ADMIN, run_id)
    assert (told.state, told.step) == (RunState.QUEUED, 3)
    logged = [event.text for event in scene.coordinator.logs(ADMIN, "digits")]
    assert "somebody waits for its place" in logged
    scene.finish("evaluate")
    work = scene.process("refresh").work
    assert (work.run_id, work.attempt) == (run_id, 2)
    assert tell(scene) is False


def test_one_that_a_person_asked_for_is_let_alone_also_by_the_next_coordinator(
    scene: Scene,
) -> None:
    scene.coordinator.refresh(asks("refresh"), "digits")
    scene.coordinator.evaluate(asks("evaluate"), "alice")
    assert tell(scene) is False
    scene.restart(outlived=True)
    assert tell(scene) is False


def test_it_gives_way_to_what_came_before_the_coordinator_died(scene: Scene) -> None:
    scene.coordinator.evaluate(asks("evaluate"), "alice")
    scene.restart(outlived=True)
    assert tell(scene) is True


def test_what_is_read_again_after_a_lost_answer_gives_way_no_more_often(scene: Scene) -> None:
    for terms in (["+digits"], ["-digits"], ["+shapes"]):
        scene.coordinator.evaluate(asks(f"evaluate {terms}"), "alice", terms=terms)
        if not tell(scene):
            break
        scene.end(GaveWay(), "refresh")
        scene.finish("evaluate")
        scene.coordinator._execution.unsure = True  # a commit whose outcome is not known
        scene.coordinator.tick()
    assert scene.process("refresh").work.attempt == 1 + MOST


def test_the_next_coordinator_leaves_its_checkpoints(scene: Scene) -> None:
    """It goes on from them; those of a run that ended are deleted."""
    run_id = scene.process("refresh").work.run_id

    def save(folder: Path) -> None:
        (folder / "tau").write_text("tau")

    for run in (run_id, "ended"):
        checkpoints(scene.home, run).write(3, save)
    scene.coordinator.evaluate(asks("evaluate"), "alice")
    scene.end(GaveWay(), "refresh")
    for outlived in (True, False):
        scene.restart(outlived=outlived)
        scene.coordinator.tick()
        assert runs(scene.home) == [run_id]
    scene.coordinator._execution.unsure = True  # a commit whose outcome is not known
    scene.coordinator.tick()
    assert newest(checkpoints(scene.home, run_id)) == 3


def test_minutes_are_looked_at_while_runs_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "SHARES", 0.0)
    scene = Scene(tmp_path, Node(1))
    for owner in ("ann", "ben"):
        scene.coordinator.submit(ADMIN, submission(scene.home, owner, owner=owner))

    def told() -> bool:
        scene.coordinator.tick()
        run_id = scene.process("train", "ann").work.run_id
        return scene.coordinator.lease(Lease(run_id=run_id, first=5, last=9)).gives_way

    assert told() is False
    begun = time.time()
    monkeypatch.setattr(time, "time", lambda: begun + 24 * 3600)
    assert told() is True
    scene.end(GaveWay(), "train", "ann")
    assert scene.process("train", "ben")
    scene.restart()
    scene.coordinator.tick()
    scene.finish("train", "ben")
    assert scene.process("train", "ann").work.attempt == 2
