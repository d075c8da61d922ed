"""The status is told in parts: what is new since a version, and nothing else."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.coordinator import board
from cluster.coordinator.core import Coordinator
from cluster.domain.base import RequestContext
from cluster.domain.status import ClusterStatus, RunState
from cluster.domain.status_sync import StatusSync
from cluster.domain.work import Progress
from cluster.scheduler.state import Node, State
from tacl.errors import StorageUnavailable, UnknownTask
from tests.support.fakes import ADMIN, FakeLauncher, Scene, asks, submission


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, Node(2))


def since(scene: Scene, version: str, context: RequestContext = ADMIN) -> ClusterStatus:
    return scene.coordinator.status(context, version)


def test_only_what_changed_is_told(scene: Scene) -> None:
    scene.trained("one", "two")
    told = since(scene, "")
    assert told.whole
    assert [task.name for task in told.tasks] == ["one", "two"]
    quiet = since(scene, told.version)
    assert (quiet.tasks, quiet.work, quiet.gone, quiet.whole) == ((), (), (), False)
    assert quiet.version == told.version
    changes = scene.coordinator.version()
    scene.submit("three")
    new = since(scene, told.version)
    assert [task.name for task in new.tasks] == ["three"]
    assert new.version != told.version
    assert scene.coordinator.version() != changes


def test_what_could_not_be_read_is_read_by_the_next_look(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.trained("one")
    version = since(scene, "").version
    with monkeypatch.context() as away:

        def unavailable(*_: object, **__: object) -> None:
            raise StorageUnavailable("the registry is away")

        away.setattr(scene.coordinator._registry, "tasks", unavailable)
        call, sent = scene.coordinator, submission(scene.home, "two")
        call.submit(ADMIN, sent)
        with pytest.raises(StorageUnavailable):
            since(scene, version)
    assert [task.name for task in since(scene, version).tasks] == ["two"]


def test_a_look_at_which_nothing_happened_reads_nothing(scene: Scene) -> None:
    scene.trained("one")
    version, changes = since(scene, "").version, scene.coordinator.version()
    reads = scene.coordinator._registry.reads.spent().times
    for _ in range(5):
        assert since(scene, version).tasks == ()
        assert scene.coordinator.version() == changes
    assert scene.coordinator._registry.reads.spent().times == reads


def test_progress_is_told_and_what_waits_when_room_changes(scene: Scene) -> None:
    run = scene.coordinator.submit(ADMIN, submission(scene.home, "one", workers=2)).run_id
    scene.coordinator.submit(ADMIN, submission(scene.home, "two"))
    version = since(scene, "").version
    scene.known(run, 3, Progress(step=3, steps=9, loss=0.5))
    (task,) = since(scene, version).tasks
    assert (task.name, task.step, task.loss) == ("one", 3, 0.5)
    version = since(scene, version).version
    scene.launcher.room = (Node(4),)
    scene.coordinator.tick()
    assert "two" in [task.name for task in since(scene, version).tasks]


def test_a_long_status_comes_in_parts(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "SHOWN", 3)
    names = [f"task{number}" for number in range(8)]
    for name in names:
        scene.submit(name)
    following, parts = StatusSync(), list[int]()
    told = following.apply(since(scene, ""))
    while told.more:
        part = since(scene, following.version)
        parts.append(len(part.tasks) + len(part.work))
        told = following.apply(part)
    assert max(parts) <= 3
    assert [task.name for task in told.tasks] == names
    scene.settle()
    told = following.all(lambda version: since(scene, version))
    assert [task.name for task in told.tasks if task.version] == names
    scene.coordinator.remove(asks("away"), "task3", False)
    told = following.all(lambda version: since(scene, version))
    assert [task.name for task in told.tasks] == [n for n in names if n != "task3"]


def test_who_reads_a_long_queue_comes_to_its_end_while_room_changes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits is reported again once there was time to read all of it."""
    clock = SimpleNamespace(monotonic=lambda: now)
    now, following = time.monotonic(), StatusSync()
    monkeypatch.setattr(board, "time", clock)
    monkeypatch.setattr(board, "SHOWN", 3)
    for number in range(14):
        scene.submit(f"task{number}")
    now += 100
    for gpus in range(1, 6):
        scene.launcher.room = (Node(2, held_gpus=gpus),)
        scene.coordinator.tick()
        told = following.apply(since(scene, following.version))
    assert (len(told.tasks), told.more) == (14, False)
    assert since(scene, following.version).tasks == ()
    now += 100
    scene.coordinator.tick()
    assert len(following.all(lambda version: since(scene, version)).tasks) == 14
    assert following.version != told.version


def test_what_waits_looks_through_the_queue_once_to_say_why(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(14):
        scene.submit(f"task{number}")
    scene.coordinator.version()  # which looks
    looked = list[int]()

    def counting(real: Any) -> property:
        def read(state: State) -> Any:
            looked.append(len(state.runs))
            return real(state)

        return property(read)

    for name in ("running", "queued"):
        monkeypatch.setattr(State, name, counting(getattr(State, name).fget))
    scene.launcher.room = (Node(3, held_cpus=1),)
    assert len([task for task in since(scene, "").tasks if task.reason]) == 12
    assert sum(number >= 14 for number in looked) < 12


def test_another_process_tells_everything_again(scene: Scene) -> None:
    scene.trained("one", "two")
    following = StatusSync()
    following.all(lambda version: since(scene, version))
    scene.coordinator.close()
    scene.coordinator = Coordinator(scene.home.path, FakeLauncher())
    told = scene.coordinator.status(ADMIN, following.version)
    assert told.whole
    assert [task.name for task in following.apply(told).tasks] == ["one", "two"]


def test_work_that_ended_is_gone_and_what_failed_is_told_while_it_matters(scene: Scene) -> None:
    scene.trained("one")
    scene.coordinator.compose(asks("c"), "ann", ["+one"])
    following = StatusSync()
    following.all(lambda version: since(scene, version))
    scene.coordinator.evaluate(asks("e"), "ann")
    told = following.all(lambda version: since(scene, version))
    assert [run.kind for run in told.work] == ["evaluate"]
    scene.fail("evaluate")
    told = following.all(lambda version: since(scene, version))
    assert [run.state for run in told.work] == [RunState.FAILED]
    scene.coordinator.evaluate(asks("again"), "ann")
    scene.settle()
    told = following.all(lambda version: since(scene, version))
    assert told.work == ()


def test_an_evaluation_that_failed_is_told_while_somebody_has_the_model(scene: Scene) -> None:
    scene.trained("one", "two")
    following = StatusSync()
    for number, model in enumerate(["one", "two", "two", "one", "two", "one"]):
        scene.coordinator.compose(asks(f"c{number}"), "ann", [f"+{model}"])
        if number in (0, 3):
            scene.coordinator.evaluate(asks(f"e{number}"), "ann")
            scene.fail("evaluate")
        told = following.all(lambda version: since(scene, version))
        assert [run.state for run in told.work] == [RunState.FAILED] * (model == "one")
    scene.restart()
    assert [run.state for run in scene.status().work] == [RunState.FAILED]


def test_what_ended_among_very_many_events_is_gone_too(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.trained("one", "two")
    scene.coordinator.compose(asks("c"), "ann", ["+one"])
    scene.coordinator.evaluate(asks("e"), "ann")
    following = StatusSync()
    following.all(lambda version: since(scene, version))
    monkeypatch.setattr(board, "MANY", 0)
    scene.coordinator.remove(asks("remove"), "one", purge=True)
    told = following.all(lambda version: since(scene, version))
    assert ([task.name for task in told.tasks], told.work) == (["two"], ())


def test_a_measure_that_failed_is_told_until_its_vector_is_replaced(scene: Scene) -> None:
    scene.trained("one")
    scene.arrive("two")
    scene.fail("measure")
    assert [run.state for run in scene.status().work] == [RunState.FAILED]
    scene.coordinator.refresh(asks("refresh"), "one")
    scene.settle()
    assert scene.task("one").version == 2
    assert scene.status().work == ()
    assert scene.coordinator.retry(asks("retry"), "one").retried == ()
    scene.coordinator.move_alias(asks("back"), "one", "champion", 1, 2)
    assert [run.state for run in scene.status().work] == [RunState.FAILED]


def test_nobody_hears_of_what_is_somebody_elses(scene: Scene) -> None:
    scene.trained("one")
    scene.coordinator.submit(ADMIN, submission(scene.home, "ann.own", owner="ann", private=True))
    scene.coordinator.compose(asks("c"), "ann", ["+one"])
    scene.coordinator.evaluate(asks("e"), "ann")
    bob, ann = (RequestContext(user=name, limited=True) for name in ("bob", "ann"))
    told = since(scene, "", bob)
    assert [task.name for task in told.tasks] == ["one"]
    assert "evaluate" not in [run.kind for run in told.work]
    assert [task.name for task in since(scene, "", ann).tasks] == ["one", "ann.own"]
    assert "evaluate" in [run.kind for run in since(scene, "", ann).work]
    version = told.version
    scene.coordinator.remove(asks("r"), "ann.own", False)
    assert "ann.own" not in since(scene, version, bob).gone
    assert "ann.own" in since(scene, version, ann).gone


def alone(scene: Scene, *names: str, user: str | None = None) -> ClusterStatus:
    return scene.coordinator.status(RequestContext(user=user, limited=user is not None), "", names)


def test_of_some_tasks_nothing_else_is_told_or_read(scene: Scene) -> None:
    scene.trained("one", "two", "three")
    whole = {task.name: task for task in scene.status().tasks}
    told = alone(scene, "three", "one", "three")
    assert told.tasks == (whole["one"], whole["three"])
    assert (told.work, told.gone, told.whole, told.more) == ((), (), True, False)
    scene.submit("four", refresh="never")
    refresh = scene.coordinator.refresh(asks("refresh"), "two").run_id
    assert [run.run_id for run in alone(scene, "two").work] == [refresh]
    assert alone(scene, "one", "four").work == ()
    assert alone(scene, "two").work == tuple(r for r in scene.status().work if r.task == "two")
    reads = scene.coordinator._registry.reads.spent().times
    alone(scene, "one")
    assert scene.coordinator._registry.reads.spent().times == reads + 2
    scene.coordinator.remove(asks("away"), "two", False)
    for name in ("two", "five"):
        with pytest.raises(UnknownTask):
            alone(scene, "one", name)


def test_of_a_private_task_nobody_else_is_told_by_its_name_or_in_a_number(scene: Scene) -> None:
    scene.launcher.room = (Node(1),)
    scene.coordinator.tick()
    for name, owner in (("ann.own", "ann"), ("ann.other", "ann"), ("open", "bob")):
        private = {"owner": owner, "private": owner == "ann"}
        scene.coordinator.submit(ADMIN, submission(scene.home, name, **private))
    with pytest.raises(UnknownTask):
        alone(scene, "ann.own", user="bob")
    assert [task.name for task in alone(scene, "ann.own", user="ann").tasks] == ["ann.own"]
    (of_all,), (of_bob,) = alone(scene, "open").tasks, alone(scene, "open", user="bob").tasks
    assert of_all.reason == "behind 1 other"  # ann's other task waits for its turn
    assert "behind" not in (of_bob.reason or "")


def test_a_version_tells_nothing_of_what_others_do_in_private(scene: Scene) -> None:
    """Bob asks after each thing that ann does: his version stays, and what is new is nothing."""
    bob, ann = (RequestContext(user=name, limited=True) for name in ("bob", "ann"))
    scene.trained("one", "two", heads="fitted")
    version = since(scene, "", bob).version
    of_ann, kinds = {since(scene, "", ann).version}, list[str]()

    def happened(*, seen: bool = False) -> None:
        told = since(scene, version, bob)
        news = (told.tasks, told.work, told.gone, told.whole) != ((), (), (), False)
        assert (told.version != version, since(scene, "", bob).version != version) == (seen, seen)
        assert news == seen
        of_ann.add(since(scene, "", ann).version)

    happened()
    hers = {"owner": "ann", "private": True, "heads": "fitted"}
    private = submission(scene.home, "ann.own", **hers)
    run = scene.coordinator.submit(ADMIN, private).run_id
    happened()
    scene.known(run, 3, Progress(step=3, steps=9, loss=0.5))
    happened()
    while (
        running := scene.launcher.running()
    ):  # its training, then pairs with it, a fit of its head
        kinds.append(running[0].work.kind)
        scene.finish_process(running[0])
        happened()
    assert {"train", "measure", "fit"} <= {*kinds}
    scene.coordinator.compose(asks("c"), "ann", ["+one", "+ann.own"])
    scene.coordinator.evaluate(asks("e"), "ann")
    happened()
    scene.settle()
    happened()
    scene.coordinator.remove(asks("r"), "ann.own", False)
    happened()
    assert len(of_ann) > 5  # she is told of each
    scene.submit("three")
    happened(seen=True)


def test_a_version_does_not_count(scene: Scene) -> None:
    told = list[str]()
    for number in range(12):
        scene.submit(f"task{number}")
        told.append(since(scene, "").version)
    assert len({len(one) for one in told}) == 1
    assert told not in (sorted(told), sorted(told, reverse=True))


def test_of_what_is_gone_the_older_half_is_forgotten_once_it_is_much(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looked before that is told everything again, who looked after it only what is new."""
    monkeypatch.setattr(board, "REMEMBERED", 4)
    scene.trained("stays")
    told = list[str]()
    for number in range(5):
        scene.submit(f"task{number}")
        scene.coordinator.version()  # which looks
        scene.coordinator.cancel(asks(f"cancel {number}"), f"task{number}")
        told.append(since(scene, "").version)
    entries = scene.coordinator._board._entries
    gone = [key.name for key, entry in entries.items() if isinstance(entry, board.Tombstone)]
    assert gone == [f"task{number}" for number in (2, 3, 4)]
    assert since(scene, told[0]).whole
    assert not since(scene, told[3]).whole
