"""Tasks whose samples are of the same kind: what is kept and told of it."""

from __future__ import annotations

from pathlib import Path

from cluster.domain.outcomes import Finished
from cluster.domain.work import RefreshWork, Trained
from cluster.scheduler.state import Node
from jobs.console import tables
from tests.support.fakes import ADMIN, Scene, asks, loud, result_of


def arrives_again(scene: Scene, name: str, near: str, **changes: str) -> None:
    """A task whose training found that its samples are of the kind of another's."""
    scene.submit(name, **changes)
    work = scene.process("train", name).work
    result = result_of(work, scene.home.blobs(), scene.tau, scene.known(work.run_id, 0))
    assert isinstance(result, Trained)
    pairs = tuple(pair for pair in result.pairs if pair.on != near)
    scene.end(Finished(result.model_copy(update={"near": (near,), "pairs": pairs})), "train", name)


def test_they_are_told_remembered_and_not_refreshed_against_each_other(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Node(4), tau=loud).trained("digits", "shapes")
    arrives_again(scene, "again", near="digits")
    for _ in range(2):
        assert scene.task("digits").near == ("again",)
        assert scene.task("again").near == ("digits",)
        assert scene.task("shapes").near == ()
        scene.restart(outlived=True)
    logged = [event.kind for event in scene.coordinator.logs(ADMIN, "digits")]
    assert "near" in logged
    works = list[RefreshWork]()
    while running := scene.launcher.running():
        works += [one.work for one in running if isinstance(one.work, RefreshWork)]
        scene.finish_process(running[0])
    met = {one.vector.task: {shard.task for shard in one.others} for one in works}
    assert "digits" not in met
    assert "again" in met["shapes"]


def test_they_are_seen_by_those_who_see_both(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Node(4))
    scene.submit("ann.own", owner="ann", private=True)
    scene.settle()
    arrives_again(scene, "digits", near="ann.own", owner="ann")
    for user, near in (("ann", ("ann.own",)), ("bob", ())):
        found = scene.coordinator.status(asks("look", user)).tasks
        assert [task.near for task in found if task.name == "digits"] == [near]
    logs = scene.coordinator.logs
    assert "near" in [event.kind for event in logs(asks("look", "ann"), "ann.own")]
    assert "near" not in [event.kind for event in logs(asks("look", "bob"), "digits")]


def test_what_is_removed_is_near_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Node(4)).trained("digits")
    arrives_again(scene, "again", near="digits")
    scene.coordinator.remove(asks("remove"), "again", purge=False)
    for _ in range(2):
        assert scene.task("digits").near == ()
        scene.restart()
    assert scene.coordinator._registry.near() == set()


def test_a_name_that_is_another_tasks_now_is_near_nothing(tmp_path: Path) -> None:
    """What was met was cancelled while the training measured, and came again with other data."""
    scene = Scene(tmp_path, Node(1))
    scene.submit("digits")
    scene.submit("shapes")
    work = scene.process("train", "digits").work
    result = result_of(work, scene.home.blobs(), scene.tau, scene.known(work.run_id, 0))
    assert isinstance(result, Trained)
    scene.coordinator.cancel(asks("cancel"), "shapes")
    scene.submit("shapes")
    found = result.model_copy(update={"near": ("shapes",)})
    scene.end(Finished(found), "train", "digits")
    assert scene.task("digits").version == 1
    assert scene.coordinator._state.near == scene.coordinator._registry.near() == set()


def test_none_of_their_pairs_is_missing(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Node(4)).trained("digits")
    arrives_again(scene, "again", near="digits")
    scene.settle()
    assert scene.coordinator.interference(ADMIN).missing == 0


def test_a_person_reads_of_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Node(4)).trained("digits")
    arrives_again(scene, "again", near="digits")
    console = tables.Console(width=200, record=True)
    console.print(tables.status(scene.status()))
    assert "again and digits: samples of the same kind" in console.export_text()
