"""Files that were of somebody's model, or of a task that was cancelled, and are needed no more."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.client.client import Client
from cluster.coordinator import erasing
from cluster.domain.work import ComposeWork
from cluster.registry.erasure import LATER
from cluster.scheduler.state import Node
from tacl.errors import UnknownTask
from tests.support.composing import fitted, make
from tests.support.data_files import csv
from tests.support.fakes import ADMIN, Scene, asks, shard_blob, submission

Wait = Callable[[float], None]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path).trained("digits", "shapes")


@pytest.fixture
def wait(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Wait:
    """So many seconds pass."""
    monkeypatch.setattr(erasing, "PACE", -1.0)
    now = [time.time() + 3600.0]  # later than what is stored meanwhile
    monkeypatch.setattr(time, "time", lambda: now[0])

    def pass_(seconds: float) -> None:
        now[0] += seconds
        scene.coordinator.tick()

    return pass_


def merged(scene: Scene, request_id: str = "one") -> str:
    """The file of alice's model, a merge."""
    make(scene, request_id=request_id)
    scene.settle()
    model = scene.coordinator.composition(ADMIN, "alice")
    assert model.merged is not None
    return model.merged.blob


def stored(scene: Scene, user: str = "alice") -> int:
    return next(one for one in scene.coordinator.usage(user)).stored


def test_files_of_a_model_are_counted_and_deleted_once_it_was_replaced(
    scene: Scene, wait: Wait
) -> None:
    blobs, before = scene.home.blobs(), stored(scene)
    first = merged(scene)
    assert stored(scene) > before
    wait(LATER + 1)
    assert blobs.exists(first)
    scene.coordinator.compose(asks("sum"), "alice", ["+digits"])
    assert stored(scene) == before
    wait(LATER - 1)
    assert blobs.exists(first)  # somebody may be about to answer with it
    wait(2)
    assert not blobs.exists(first)
    assert merged(scene, request_id="again") == first  # made again, when it is asked for
    assert blobs.exists(first)


def test_a_model_that_came_back_is_kept_until_it_leaves_again(scene: Scene, wait: Wait) -> None:
    blobs = scene.home.blobs()
    first = merged(scene)
    scene.coordinator.compose(asks("sum"), "alice", ["+digits"])
    merged(scene, request_id="again")
    wait(LATER + 1)
    assert blobs.exists(first)
    scene.coordinator.compose(asks("another sum"), "alice", ["+digits"])
    wait(LATER + 1)
    assert not blobs.exists(first)


def test_what_others_answer_with_is_kept(scene: Scene, wait: Wait) -> None:
    first = merged(scene)
    make(scene, user="bob", request_id="bob's")
    scene.settle()
    scene.coordinator.compose(asks("sum"), "alice", ["+digits"])
    wait(LATER + 1)
    model = scene.coordinator.composition(ADMIN, "bob").merged
    assert model is not None
    scene.home.blobs().verify(model.blob)
    scene.coordinator.compose(asks("his sum"), "bob", ["+digits"])
    wait(LATER + 1)
    wait(erasing.DAY)
    assert not {first, model.blob} & scene.home.blobs().existing({first, model.blob})


def test_a_model_that_nobody_awaits_any_more_leaves_when_it_is_made(
    scene: Scene, wait: Wait
) -> None:
    make(scene)
    scene.coordinator.compose(asks("sum"), "alice", ["+digits"])
    found = {one.digest for one in scene.home.blobs().stored()}
    scene.settle()
    assert scene.coordinator.composition(ADMIN, "alice").method == "sum"
    new = {one.digest for one in scene.home.blobs().stored()} - found
    assert new
    wait(LATER + 1)
    assert not new & {one.digest for one in scene.home.blobs().stored()}


def given(scene: Scene) -> dict[str, str]:
    """Digests of the rows that alice's next model is made from."""
    (work,) = (one for one in scene.running() if isinstance(one, ComposeWork))
    assert work.making.fit is not None
    assert work.making.fit.held_out is not None
    return {"shots": work.making.fit.shots.digest, "held out": work.making.fit.held_out.digest}


def test_rows_that_a_model_is_made_from_leave_with_it(scene: Scene, wait: Wait) -> None:
    blobs, before = scene.home.blobs(), stored(scene)
    make(scene, making=fitted(scene))
    rows = given(scene)
    assert stored(scene) > before
    wait(LATER + 1)
    scene.settle()
    wait(LATER + 1)
    assert not blobs.exists(rows["shots"])
    assert blobs.exists(rows["held out"])  # they judge it
    scene.coordinator.compose(asks("sum"), "alice", ["+digits"])
    wait(LATER + 1)
    assert not blobs.exists(rows["held out"])
    assert stored(scene) == before


def test_rows_of_a_model_that_is_cancelled_leave(scene: Scene, wait: Wait) -> None:
    make(scene, making=fitted(scene))
    rows = {*given(scene).values()}
    scene.coordinator.cancel_compositions(asks("stop"), "alice")
    wait(LATER + 1)
    assert not scene.home.blobs().existing(rows)


def test_files_of_a_cancelled_task_leave_and_count_no_more(scene: Scene, wait: Wait) -> None:
    new = submission(scene.home, "signs", owner="ann")
    scene.coordinator.submit(ADMIN, new)
    assert stored(scene, "ann") > 0
    scene.coordinator.cancel(asks("stop"), "signs", False)
    assert stored(scene, "ann") == 0
    wait(LATER + 1)
    assert not scene.home.blobs().existing({new.train.digest, new.test.digest})


def test_files_of_a_cancelled_task_that_another_has_too_stay(scene: Scene, wait: Wait) -> None:
    """Whoever stores the same bytes shares the file."""
    registry, blobs = scene.coordinator._registry, scene.home.blobs()
    parts = registry.task("digits").submission.parts
    twin = submission(scene.home, "twin", **parts)
    needed = {blob.digest for blob in parts.values()}
    scene.coordinator.submit(ADMIN, twin)
    scene.coordinator.cancel(asks("stop"), "twin", False)
    assert needed & registry.due_files(time.time() + 2 * LATER).keys()
    wait(LATER + 1)
    assert blobs.existing(needed) == needed
    scene.coordinator.remove(asks("purge"), "digits", True)
    wait(LATER + 1)
    assert not blobs.existing(needed)


def test_what_somebody_stored_again_is_kept_until_they_told_of_it(scene: Scene, wait: Wait) -> None:
    """They may be about to submit it."""
    new = submission(scene.home, "signs", owner="ann")
    scene.coordinator.submit(ADMIN, new)
    scene.coordinator.cancel(asks("stop"), "signs", False)
    later = time.time() + LATER
    for blob in new.parts.values():
        os.utime(scene.home.blobs().local_path(blob.digest), (later, later))
    wait(LATER + 1)
    scene.coordinator.submit(ADMIN, new.model_copy(update={"request_id": "again"}))
    wait(2 * erasing.DAY)
    scene.settle()
    assert "signs" in scene.ready()


def test_rows_of_a_model_that_left_with_its_task_leave(scene: Scene, wait: Wait) -> None:
    make(scene, making=fitted(scene))
    rows = {*given(scene).values()}
    scene.coordinator.remove(asks("purge"), "shapes", True)
    wait(LATER + 1)
    assert not scene.home.blobs().existing(rows)


@pytest.mark.parametrize("task", ["digits", "nobody"])
def test_samples_that_were_added_leave_and_those_of_the_task_stay(
    task: str, scene: Scene, wait: Wait
) -> None:
    """Those of the task hold their rows too. Where they are refused, they leave all the same."""
    blobs, registry = scene.home.blobs(), scene.coordinator._registry
    new, shapes = shard_blob(scene.home, "more"), registry.shards("shapes")[0].blob
    for request_id, added in (("more", new), ("of another", shapes)):
        if task == "digits":
            scene.coordinator.add_samples(asks(request_id), task, added)
        else:
            with pytest.raises(UnknownTask):
                scene.coordinator.add_samples(asks(request_id), task, added)
    scene.settle()
    assert blobs.exists(new.digest)
    wait(LATER + 1)
    assert not blobs.exists(new.digest)
    needed = {one.blob.digest for one in registry.shards()}
    assert blobs.existing(needed) == needed


def test_a_purge_leaves_nothing_of_samples_that_were_added(scene: Scene, wait: Wait) -> None:
    blobs = scene.home.blobs()
    scene.coordinator.submit(ADMIN, submission(scene.home, "signs"))
    scene.settle()
    before = {one.digest for one in blobs.stored()}
    mine = set(scene.coordinator._registry.references_of("signs"))
    scene.coordinator.add_samples(asks("grow"), "signs", shard_blob(scene.home, "more"))
    scene.settle()
    scene.coordinator.remove(asks("purge"), "signs", True)
    wait(LATER + 1)
    assert {one.digest for one in blobs.stored()} == before - mine


def test_purged_samples_that_a_training_needs_leave_when_it_ends(scene: Scene, wait: Wait) -> None:
    """It met them as those of a task that was cancelled, and is told of them again if it dies."""
    scene.launcher.room = (Node(3),)
    scene.trained("secret", share="none")
    registry, blobs = scene.coordinator._registry, scene.home.blobs()
    rows = registry.task("secret").submission.parts
    scene.submit("signs")
    scene.submit("twin", **rows)
    run_id = scene.process("train", "signs").work.run_id
    assert rows["shard"] in [shard.blob for shard in scene.known(run_id, 0)]
    scene.coordinator.cancel(asks("stop"), "twin")
    scene.coordinator.remove(asks("purge"), "secret", True)
    wait(LATER + 1)
    assert blobs.exists(rows["shard"].digest)
    scene.settle()
    wait(erasing.DAY)
    assert not blobs.existing({blob.digest for blob in rows.values()})


def test_what_is_owed_outlives_the_coordinator(scene: Scene, wait: Wait) -> None:
    first = merged(scene)
    scene.coordinator.compose(asks("sum"), "alice", ["+digits"])
    scene.restart()
    wait(LATER + 1)
    assert not scene.home.blobs().exists(first)


def test_who_takes_a_while_to_decide_submits_the_same_rows_all_the_same(
    scene: Scene, wait: Wait, tmp_path: Path
) -> None:
    """Their files were deleted meanwhile."""
    client = Client(scene.home.path, coordinator=scene.coordinator)
    data, there = csv(tmp_path / "data.csv"), scene.home.blobs().stored
    client.submit("one", data)
    before = {file.digest for file in there()}

    def decide(same: str) -> bool:
        wait(LATER + 1)
        assert {file.digest for file in there()} == before
        return True

    assert client.submit("two", data, seed=7, again=decide).task == "two"
    assert {file.digest for file in there()} > before
