"""A task that is cancelled before it has a vector leaves: samples, name, files; what met it is told
again what it was told."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

import pytest

from cluster.coordinator.garbage import GRACE
from cluster.domain.base import RequestContext
from cluster.domain.tasks import GENERIC
from cluster.domain.work import Lease, TrainWork
from cluster.scheduler.state import Node
from tacl.errors import NotAllowed, UnknownTask
from tests.support.fakes import ADMIN, Scene, asks, shard_blob, submission


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, Node(2))


def lease(scene: Scene, run_id: str, first: int, last: int, since: int = -1) -> list[tuple]:
    """What a run is told: (task, version of its samples, from which step, before which)."""
    leave = scene.coordinator.lease(Lease(run_id=run_id, first=first, last=last, since=since))
    told = leave.arrivals
    return [(one.shard.task, one.shard.version, one.step, one.left) for one in told]


def again(scene: Scene, name: str, **changes: object) -> None:
    """Under its name, by a request of its own."""
    scene.submit(name, request_id=f"{name} again {time.monotonic_ns()}", **changes)


def test_it_leaves_the_store_and_its_name_is_free(scene: Scene) -> None:
    scene.submit("digits")
    scene.submit("shapes")
    training = scene.process("train", "digits").work.run_id
    assert lease(scene, training, 0, 3) == [(GENERIC, 1, 0, None), ("shapes", 1, 0, None)]
    answer = scene.coordinator.cancel(asks("stop"), "shapes")
    assert answer.left
    assert scene.coordinator.cancel(asks("stop"), "shapes") == answer
    assert lease(scene, training, 4, 4, 3) == [("shapes", 1, 0, 4)]
    assert [task.name for task in scene.coordinator.status(ADMIN).tasks] == ["digits"]
    with pytest.raises(UnknownTask, match="submit it again"):
        scene.coordinator.retry(RequestContext(), "shapes")
    again(scene, "shapes", shard=shard_blob(scene.home, "others"))
    scene.settle()
    assert scene.ready() == ["digits", "shapes"]


def test_what_a_training_was_told_is_told_again_when_the_name_is_of_others(scene: Scene) -> None:
    scene.submit("digits")
    tell = partial(lease, scene, scene.process("train", "digits").work.run_id)
    scene.submit("shapes")
    tell(0, 4)
    scene.coordinator.cancel(asks("stop"), "shapes")
    tell(5, 9)
    again(scene, "shapes", shard=shard_blob(scene.home, "others"))
    tell(10, 14)
    told = [("shapes", 1, 0, 5), ("shapes", 2, 10, None)]
    assert tell(0, 0)[1:] == told
    scene.restart()
    assert tell(0, 0)[1:] == told
    scene.coordinator.cancel(asks("stop too"), "shapes")
    scene.restart()
    assert tell(15, 15)[1:] == [("shapes", 1, 0, 5), ("shapes", 2, 10, 15)]


def test_a_name_given_again_between_two_leases_is_met_as_what_it_is_now(scene: Scene) -> None:
    scene.submit("digits")
    scene.submit("shapes")
    training = scene.process("train", "digits").work.run_id
    lease(scene, training, 0, 4)
    scene.coordinator.cancel(asks("stop"), "shapes")
    others = shard_blob(scene.home, "others")
    again(scene, "shapes", shard=others)
    seen = [shard.blob for shard in scene.known(training, 5)]
    assert seen[1:] == [others]
    assert [shard.blob for shard in scene.known(training, 4)][1:] != [others]


def test_the_same_data_come_again_and_are_trained_from_the_start(scene: Scene) -> None:
    scene.submit("digits")
    run_id = scene.process("train").work.run_id
    scene.known(run_id, 7)
    kept = scene.home.path / "checkpoints" / run_id / "3"
    kept.mkdir(parents=True)
    scene.coordinator.cancel(asks("stop"), "digits")
    again(scene, "digits")
    scene.coordinator.tick()
    assert not kept.exists()
    process = scene.process("train")
    assert (process.work.run_id, process.work.attempt) == (run_id, 2)
    assert scene.coordinator._registry.run(run_id).reached == -1
    scene.restart()
    scene.coordinator.tick()
    scene.settle()
    assert scene.ready() == ["digits"]


def test_its_files_are_garbage_once_nothing_is_told_of_them_again(scene: Scene) -> None:
    scene.submit("digits")
    scene.submit("shapes")
    mine = submission(scene.home, "shapes")
    scene.known(scene.process("train", "digits").work.run_id, 0)
    scene.coordinator.cancel(asks("stop"), "shapes")
    scene.coordinator.tick()
    needed = scene.coordinator.references(ADMIN).files
    assert mine.train.digest not in needed
    assert mine.shard.digest in needed  # the training of digits may die, and be told again
    scene.finish("train", "digits")
    assert mine.shard.digest not in scene.coordinator.references(ADMIN).files
    past = time.time() - GRACE - 1
    for digest in (mine.train.digest, mine.shard.digest):
        os.utime(scene.home.blobs().local_path(digest), (past, past))
    scene.coordinator.collect()
    scene.coordinator.tick()
    assert not scene.home.blobs().exists(mine.shard.digest)


def test_of_a_private_task_nobody_hears_after_it_left(scene: Scene) -> None:
    scene.submit("ann.digits", owner="ann", private=True)
    run_id = scene.process("train").work.run_id
    ann, bob = RequestContext(user="ann"), RequestContext(user="bob")
    scene.coordinator.cancel(asks("stop", "ann"), "ann.digits")
    for restarted in (False, True):
        if restarted:
            scene.restart()
        assert scene.coordinator.run(ann, run_id).state == "withdrawn"
        with pytest.raises(Exception, match="there is no run"):
            scene.coordinator.run(bob, run_id)


def test_a_task_with_a_vector_stays(scene: Scene) -> None:
    scene.trained("digits")
    assert not scene.coordinator.cancel(asks("stop"), "digits").left
    assert scene.ready() == ["digits"]


def test_a_kept_task_may_leave_later(scene: Scene) -> None:
    scene.submit("digits")
    assert not scene.coordinator.cancel(asks("stop"), "digits", keep=True).left
    assert scene.task("digits").state == "cancelled"
    assert scene.coordinator.cancel(asks("go"), "digits").left
    again(scene, "digits")
    scene.coordinator.tick()
    scene.settle()
    assert scene.ready() == ["digits"]


def test_what_was_cancelled_and_comes_again_is_of_who_submits_it(scene: Scene) -> None:
    """It is the same run: of the same rows, under the same name."""
    for owner in ("ann", "ben"):
        new = submission(scene.home, "digits", owner=owner, request_id=owner)
        run_id = scene.coordinator.submit(ADMIN, new).run_id
        scene.coordinator.tick()
        if owner == "ann":
            scene.coordinator.cancel(asks("stop"), "digits")
            scene.coordinator.tick()
    work = scene.process("train", "digits").work
    assert isinstance(work, TrainWork)
    assert (work.submission.owner, scene.coordinator._registry.run(run_id).user) == ("ben", "ben")
    assert scene.coordinator._state.runs[run_id].user == "ben"


def test_logs_are_of_the_task_that_has_the_name_now(scene: Scene) -> None:
    """What went wrong with an earlier one, which was private perhaps, is nobody else's business."""
    scene.submit("digits")
    scene.coordinator.tick()
    scene.fail("train", "digits", cause="ValueError: a secret")
    scene.coordinator.cancel(asks("stop"), "digits")
    again(scene, "digits")
    logs = scene.coordinator.logs(ADMIN, "digits")
    assert logs[0].kind == "submitted"
    assert [event.kind for event in logs].count("submitted") == 1
    assert not [event for event in logs if "secret" in event.text or "erased" in event.text]


def test_a_name_that_became_anothers_is_theirs(scene: Scene) -> None:
    """Also for whoever was just told that there is no such task, or that it is their own."""
    call, bob = scene.coordinator, RequestContext(user="bob", limited=True)
    scene.submit("digits", owner="bob")
    call.cancel(bob, "digits")
    again(scene, "digits", owner="ann")
    for change in (
        lambda who: call.cancel(who, "digits", keep=True),
        lambda who: call.retry(who, "digits"),
        lambda who: call.move_alias(who, "digits", "champion", 1, None),
    ):
        with pytest.raises(NotAllowed, match="only the owner"):
            change(RequestContext(user="bob", limited=True))
    call.tick()
    assert scene.process("train", "digits")
    assert call.cancel(RequestContext(user="ann", limited=True), "digits").left
