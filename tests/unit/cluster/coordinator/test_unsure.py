"""While it is not known what the registry has, nothing is decided, recorded or carried out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from cluster.coordinator import garbage, retries
from cluster.coordinator.core import Coordinator
from cluster.domain.base import RequestContext
from cluster.domain.outcomes import Finished
from cluster.domain.status import RunState
from cluster.registry import Registry
from cluster.scheduler.state import Node
from cluster.storage.home import Home
from tacl.errors import StorageUnavailable, UnknownTask
from tests.support.fakes import ADMIN, FakeProcess, Scene, asks, calm, result_of
from tests.support.lost import lost_answer

SECRET = "ann.secret"


def done(scene: Scene, process: FakeProcess) -> None:
    """It has its result, which nobody has heard."""
    told = scene.known(process.work.run_id, 0)
    process.outcome = Finished(result_of(process.work, scene.home.blobs(), calm, told))


@pytest.mark.parametrize("cancelled", ["digits", "waits"])
def test_what_was_cancelled_while_it_is_looked_at_what_runs_is_not_gone_on_with(
    cancelled: str, scene: Scene
) -> None:
    """The answer to the commit is lost, and the registry is there again at once."""
    for name in ("digits", "shapes", "waits"):
        scene.submit(name)
    done(scene, scene.process("train", "digits"))
    run_id = scene.task(cancelled).run_id
    with lost_answer(scene, "cancel"), pytest.raises(StorageUnavailable):
        scene.coordinator.cancel(asks("stop"), cancelled, keep=True)
    scene.coordinator._execution.tick()  # it had begun before
    assert scene.coordinator._registry.run(run_id).state == RunState.CANCELLED
    scene.coordinator.tick()
    assert scene.coordinator.cancel(asks("stop"), cancelled, keep=True).cancelled == (run_id,)
    assert scene.coordinator.run(ADMIN, run_id).state == RunState.CANCELLED
    scene.settle()
    assert scene.ready() == [name for name in ("digits", "shapes", "waits") if name != cancelled]


def test_a_vector_that_was_published_is_there_though_its_learner_could_not_be_let_go(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may compose with it at once: to cancel its task does not take it away."""

    def refuse(*_: object) -> NoReturn:
        raise OSError("Ray's control service is away")

    monkeypatch.setattr(retries, "pause_after", lambda failures: 60.0)
    scene.submit("digits")
    process = scene.process("train")
    done(scene, process)
    with monkeypatch.context() as away:
        away.setattr(type(scene.launcher), "let_go", refuse)
        scene.coordinator.tick()
        away.setattr(type(scene.launcher), "nodes", refuse)
        scene.coordinator.compose(asks("compose"), "ann", ["+digits"])  # which asks for no node
    answer = scene.coordinator.cancel(asks("stop"), "digits")
    assert (answer.left, answer.cancelled) == (False, ())
    scene.coordinator.tick()
    assert process.cancelled
    assert scene.ready() == ["digits"]
    assert scene.coordinator.status(ADMIN).trouble is None


ASKED: dict[str, Callable[[Coordinator, RequestContext], object]] = {
    "status": lambda call, who: call.status(who),
    "references": lambda call, who: call.references(who),
    "status of it": lambda call, who: call.status(who, "", [SECRET]),
    "task": lambda call, who: call.task(who, SECRET),
    "interference of it": lambda call, who: call.interference_of(who, SECRET),
}


@pytest.mark.parametrize("asked", ASKED)
def test_nobody_hears_of_a_private_task_before_it_is_known_whose_it_is(
    asked: str, scene: Scene
) -> None:
    with lost_answer(scene, "accept"), pytest.raises(StorageUnavailable):
        scene.submit(SECRET, owner="ann", private=True)
    who = RequestContext(user="bob", limited=True)
    if asked in ("status", "references"):
        assert SECRET not in str(ASKED[asked](scene.coordinator, who))
    else:
        with pytest.raises(UnknownTask, match="there is none yet"):
            ASKED[asked](scene.coordinator, who)


def test_heads_of_a_champion_are_not_forgotten_before_it_is_known_which_that_is(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alias is moved back while it is looked for garbage, and the answer is lost."""
    call, look = scene.trained("digits", heads="fitted").coordinator, garbage.scan
    first = call._registry.run_ids(RunState.DONE, "fit")
    call.refresh(asks("now"), "digits")
    scene.settle()
    assert len(call._registry.run_ids(RunState.DONE, "fit")) == 1 + len(first)

    def moved_back(home: Home, registry: Registry) -> garbage.Garbage:
        with lost_answer(scene, "move_alias"), pytest.raises(StorageUnavailable):
            call.move_alias(asks("back"), "digits", "champion", 1, 2)
        return look(home, registry)

    monkeypatch.setattr(garbage, "scan", moved_back)
    call.collect()
    assert {*first} <= {*call._registry.run_ids(RunState.DONE, "fit")}
    assert not scene.running()


def away(*_: object) -> NoReturn:
    raise StorageUnavailable("nobody there")


def test_an_error_that_could_not_be_recorded_is_not_forgotten_when_the_registry_is_read_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.submit("digits")
    with monkeypatch.context() as cut:
        cut.setattr(Registry, "fail", away)
        scene.fail("train", "digits", "ValueError: no")
        scene.coordinator._execution.unsure = True  # a commit of something else
        scene.coordinator.tick()
        assert not scene.running()  # it would meet the same error
    scene.coordinator.tick()
    run = scene.coordinator._registry.run(scene.task("digits").run_id)
    assert (run.state, run.cause) == (RunState.FAILED, "ValueError: no")
    assert not scene.running()


def test_a_death_that_could_not_be_recorded_counts_when_the_registry_is_read_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And while there is no room for another process, it is said to wait."""
    scene.submit("digits")
    with monkeypatch.context() as cut:
        cut.setattr(Registry, "requeue", away)
        scene.launcher.room = ()
        scene.die("train", "digits", "killed")
    scene.coordinator._execution.unsure = True  # a commit of something else
    scene.coordinator.tick()
    run = scene.coordinator._registry.run(scene.task("digits").run_id)
    assert (run.state, run.deaths, run.cause) == (RunState.QUEUED, 1, "killed")


def test_a_start_that_may_have_been_recorded_waits_again_where_its_room_is_gone(
    scene: Scene,
) -> None:
    with lost_answer(scene, "start"):
        scene.submit("digits")
        scene.launcher.room = ()
        scene.coordinator.tick()
    scene.coordinator._execution.unsure = True  # a commit of something else
    scene.coordinator.tick()
    assert not scene.running()
    assert scene.task("digits").state == "queued"


def test_statistics_whose_answer_was_lost_are_seen_though_their_learner_tells_no_more(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path, Node(2))
    scene.submit("digits")
    scene.submit("shapes", share="statistics")
    blob = scene.home.blobs().put(b"statistics of shapes")
    run_id = scene.process("train", "shapes").work.run_id
    with lost_answer(scene, "state"), pytest.raises(StorageUnavailable):
        scene.coordinator.publish_statistics(run_id, blob, 1)
    scene.coordinator.tick()
    told = scene.known(scene.process("train", "digits").work.run_id, 0)
    assert [shard.statistics for shard in told] == [None, blob]
