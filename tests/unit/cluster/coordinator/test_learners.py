"""The coordinator dies and its learners do not: the next one goes on with them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar, NoReturn

import pytest

from cluster.domain.outcomes import Finished, GaveWay, Gone, Lost, Outcome, Raised
from cluster.domain.status import RunState
from cluster.domain.tasks import GENERIC
from cluster.domain.work import Lease, Progress
from cluster.scheduler.plan import DEATHS
from cluster.scheduler.state import Node
from tacl.errors import RunFailed
from tests.support.fakes import (
    ADMIN,
    FakeLauncher,
    FakeProcess,
    Scene,
    asks,
    calm,
    result_of,
    task_of,
)


def submitted(scene: Scene, name: str = "digits") -> FakeProcess:
    scene.submit(name)
    return scene.process("train", name)


def done(scene: Scene, process: FakeProcess) -> None:
    """It has its result, which nobody has heard."""
    told = scene.known(process.work.run_id, 0)
    process.outcome = Finished(result_of(process.work, scene.home.blobs(), calm, told))


class Counting(FakeLauncher):
    """Knows at one look which work has ended."""

    looks = 0
    polled: ClassVar[list[str | None]] = []

    def ended(self, handles: Mapping[str, FakeProcess]) -> Collection[str]:
        self.looks += 1
        return [run_id for run_id, one in handles.items() if one.outcome is not None]

    def poll(self, handle: FakeProcess) -> Outcome | None:
        self.polled.append(task_of(handle.work))
        return super().poll(handle)


def test_however_many_runs_there_are_a_tick_looks_once_at_all(tmp_path: Path) -> None:
    scene, names = Scene(tmp_path, Node(20)), [f"task{number}" for number in range(20)]
    scene.launcher.__class__ = Counting
    for name in names:
        scene.submit(name)
    scene.coordinator.tick()
    done(scene, scene.process("train", "task7"))
    scene.coordinator.tick()
    assert scene.ready() == ["task7"]
    assert isinstance(scene.launcher, Counting)
    assert (scene.launcher.looks, Counting.polled) == (2, ["task7"])


def test_what_cannot_be_looked_at_together_is_looked_at_one_by_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def odd(handles: object) -> NoReturn:
        raise ValueError("one of them is odd")

    submitted(scene)
    done(scene, scene.process("train", "digits"))
    monkeypatch.setattr(scene.launcher, "ended", odd)
    scene.coordinator.tick()
    assert scene.ready() == ["digits"]


def kinds(scene: Scene, name: str = "digits") -> list[str]:
    return [event.kind for event in scene.coordinator.logs(ADMIN, name)]


def test_a_learner_goes_on_and_its_run_ends_by_one_attempt(scene: Scene) -> None:
    learner = submitted(scene)
    first = scene.known(learner.work.run_id, 0, attempt=1)
    scene.restart(outlived=True)
    assert scene.launcher.processes == [learner]
    assert scene.task("digits").state == "training"
    assert scene.known(learner.work.run_id, 0, attempt=1) == first  # its answer may be lost
    scene.known(learner.work.run_id, 1, Progress(step=1, steps=9, loss=1.0), attempt=1)
    assert scene.task("digits").step == 1
    scene.finish("train", "digits")
    assert learner.cancelled  # its room is free
    assert (scene.task("digits").version, scene.task("digits").attempt) == (1, 1)


def test_what_arrives_joins_a_learner_that_was_taken_over_at_a_step_nobody_had_leave_for(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path, Node(4))
    learner = submitted(scene)
    scene.coordinator.lease(Lease(run_id=learner.work.run_id, first=0, last=9, attempt=1))
    scene.restart(outlived=True)
    scene.submit("signs")
    asked = Lease(run_id=learner.work.run_id, first=0, last=9, attempt=1)
    assert {one.shard.task for one in scene.coordinator.lease(asked).arrivals} == {GENERIC}
    asked = Lease(run_id=learner.work.run_id, first=10, last=19, since=9, attempt=1)
    told = scene.coordinator.lease(asked).arrivals
    assert [(one.shard.task, one.step) for one in told] == [("signs", 10)]


def test_coordinators_that_die_take_nothing_of_the_budget(scene: Scene) -> None:
    learner = submitted(scene)
    for _ in range(5 * DEATHS):
        scene.restart(outlived=True)
    assert scene.process("train") is learner
    for _ in range(5 * DEATHS):
        scene.restart()
    assert scene.coordinator._registry.run(learner.work.run_id).deaths == 0
    scene.finish("train")
    assert scene.ready() == ["digits"]
    assert not {"died", "failed"} & set(kinds(scene))


def test_a_result_is_heard_by_whoever_comes_next_and_once(scene: Scene) -> None:
    learner = submitted(scene)
    done(scene, learner)
    scene.restart(outlived=True)
    assert scene.task("digits").version is None
    scene.coordinator.tick()
    assert (scene.task("digits").version, scene.task("digits").attempt) == (1, 1)
    learner.cancelled = False  # as when the coordinator died before it could end it
    scene.restart(outlived=True)
    assert learner.cancelled
    assert len(scene.coordinator.vectors(ADMIN, "digits")) == 1


def test_a_result_that_cannot_be_recorded_stays_with_its_learner(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = submitted(scene)
    done(scene, learner)

    def full(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(scene.coordinator._registry, "publish", full)
    scene.coordinator.tick()
    assert not learner.cancelled
    scene.restart(outlived=True)
    scene.coordinator.tick()
    assert (scene.task("digits").version, scene.task("digits").attempt) == (1, 1)


def test_a_learner_that_died_meanwhile_is_started_again_and_no_death_is_counted(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path, Node(2))
    lost, lives = submitted(scene, "digits"), submitted(scene, "signs")
    lost.cancelled = True
    scene.restart(outlived=True)
    again = scene.process("train", "digits")
    assert (again.work.attempt, scene.process("train", "signs")) == (2, lives)
    assert scene.coordinator._registry.run(lost.work.run_id).deaths == 0
    scene.settle()
    assert {scene.task("digits").attempt, scene.task("signs").attempt} == {1, 2}


def test_learners_that_were_taken_over_have_their_room(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Node(2))
    for name in ("a", "b", "c"):
        scene.submit(name)
    scene.restart(outlived=True)
    assert len(scene.running()) == 2
    assert scene.coordinator.cluster().free_cpus == 0
    assert scene.task("c").state == "queued"


def test_a_learner_that_was_taken_over_is_cancelled(scene: Scene) -> None:
    learner = submitted(scene)
    scene.restart(outlived=True)
    scene.coordinator.cancel(asks("stop"), "digits", keep=True)
    assert learner.cancelled
    assert scene.task("digits").state == "cancelled"


def test_a_purge_begins_a_learner_that_was_taken_over_anew(scene: Scene) -> None:
    scene.trained("secret")
    learner = submitted(scene)
    scene.known(learner.work.run_id, 0)
    scene.restart(outlived=True)
    scene.coordinator.remove(asks("purge"), "secret", True)
    assert learner.cancelled
    scene.coordinator.tick()
    assert scene.process("train", "digits").work.attempt == 2
    assert [shard.task for shard in scene.known(learner.work.run_id, 0)] == [GENERIC]


@pytest.mark.parametrize("purge", [True, False])
def test_a_learner_of_a_task_that_was_removed_meanwhile_is_ended(scene: Scene, purge: bool) -> None:
    learner = submitted(scene)
    scene.coordinator.remove(asks("remove"), "digits", purge)
    learner.cancelled = False  # as when the coordinator died before it could end it
    scene.restart(outlived=True)
    assert learner.cancelled
    assert not scene.coordinator.is_current(learner.work.run_id, 1)


def test_only_what_ended_well_leaves_a_learner_that_may_do_more(scene: Scene) -> None:
    learners = {name: submitted(scene, name) for name in ("digits", "signs")}
    scene.finish("train", "digits")
    scene.fail("train", "signs")
    assert [learners[name].let_go for name in learners] == [True, False]


@pytest.mark.parametrize("outcome", [Gone("killed"), Raised("ValueError: no"), GaveWay()])
def test_what_did_not_end_well_ends_its_learner(scene: Scene, outcome: Outcome) -> None:
    learner = submitted(scene)
    scene.end(outcome, "train")
    assert (learner.cancelled, learner.let_go) == (True, False)


def test_a_learner_whose_run_is_cancelled_ends_though_it_is_done(scene: Scene) -> None:
    learner = submitted(scene)
    done(scene, learner)
    scene.coordinator.cancel(asks("stop"), "digits", keep=True)
    scene.coordinator.tick()
    assert (learner.cancelled, learner.let_go) == (True, False)


def test_a_learner_whose_result_is_not_what_it_should_be_ends(scene: Scene) -> None:
    learner = submitted(scene)
    done(scene, learner)
    assert isinstance(learner.outcome, Finished)
    lost = learner.outcome.result.model_copy(update={"vector_blob": "0" * 64})
    learner.outcome = Finished(lost)
    scene.coordinator.tick()
    assert (learner.cancelled, learner.let_go) == (True, False)


class Counted(FakeLauncher):
    """One CPU, which is free once its learner was let go."""

    def free(self) -> tuple[Node, ...]:
        return (Node(1 - len(self._there())),)


def test_what_waits_for_the_room_of_what_ended_starts_at_the_same_tick(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Node(1))
    scene.launcher.__class__ = Counted
    scene.coordinator.tick()
    for name in ("digits", "signs"):
        scene.submit(name)
    done(scene, scene.process("train"))
    scene.coordinator.tick()
    assert task_of(scene.process("train").work) == "signs"


def test_only_the_current_attempt_is_awaited(scene: Scene) -> None:
    learner = submitted(scene)
    run_id = learner.work.run_id
    assert scene.coordinator.is_current(run_id, 1)
    scene.die("train")
    assert [scene.coordinator.is_current(run_id, attempt) for attempt in (1, 2)] == [False, True]
    learner.cancelled, learner.outcome = False, None  # it was silent, and lives
    scene.restart(outlived=True)
    assert learner.cancelled
    assert scene.process("train").work.attempt == 2
    with pytest.raises(RunFailed, match="attempt 1"):
        scene.known(run_id, 0, attempt=1)
    scene.finish("train")
    assert not scene.coordinator.is_current(run_id, 2)
    assert scene.coordinator._registry.run(run_id).state == RunState.DONE


def test_a_learner_whose_steps_a_lost_database_forgot_begins_again(scene: Scene) -> None:
    """What was told could not be replayed otherwise."""
    run_id = submitted(scene).work.run_id
    for first in (0, 10):
        scene.coordinator.lease(Lease(run_id=run_id, first=first, last=first + 9, attempt=1))
    with scene.coordinator._registry._write() as db:
        db.exec_driver_sql("UPDATE run SET reached = 9")
    scene.restart(outlived=True)
    asked = Lease(run_id=run_id, first=20, last=29, since=19, attempt=1)
    with pytest.raises(Lost, match="step 19"):
        scene.coordinator.lease(asked)
    scene.die("train")
    anew = {"since": -1, "attempt": 2}  # from its checkpoint, as after a power cut
    assert scene.coordinator.lease(asked.model_copy(update=anew)).arrivals
