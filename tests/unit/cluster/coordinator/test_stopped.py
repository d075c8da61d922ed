"""Evaluations and compositions that failed or were cancelled leave the plan, as what is done does;
the registry tells of them, and whoever asks again is served."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from cluster.coordinator import retries
from cluster.domain.base import RequestContext
from cluster.domain.compositions import CompositionMethod
from cluster.domain.outcomes import Raised
from cluster.domain.status import RunState
from cluster.registry import Registry, RunRecord
from cluster.scheduler.state import Node
from tacl.errors import RunFailed, StorageUnavailable
from tests.support.fakes import ADMIN, Scene, asks
from tests.support.statements import statements

TIES = CompositionMethod(method="ties")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    found = Scene(tmp_path, Node(4)).trained("a", "b")
    for user in ("ann", "bob"):
        found.coordinator.compose(asks(f"compose {user}"), user, ["+a", "+b"])
    return found


def evaluate(scene: Scene, user: str = "ann") -> str:
    return scene.coordinator.evaluate(RequestContext(), user).run_id


def make(scene: Scene) -> str:
    return scene.coordinator.start_composition(RequestContext(), "ann", ["+a", "+b"], TIES).run_id


def planned(scene: Scene) -> set[str]:
    return {*scene.coordinator._state.runs}


def counted(scene: Scene) -> int:
    return sum(one.runs for one in scene.coordinator.figures().runs)


STOPS: dict[str, tuple[Callable[[Scene], str], Callable[[Scene], object]]] = {
    "an evaluation failed": (evaluate, lambda scene: scene.fail("evaluate", cause="no")),
    "a composition failed": (make, lambda scene: scene.fail("compose", cause="no")),
    "a composition was cancelled": (
        make,
        lambda scene: scene.coordinator.cancel_compositions(RequestContext(), "ann"),
    ),
}


@pytest.mark.parametrize("how", STOPS)
def test_what_stopped_leaves_and_is_done_when_it_is_asked_for_again(how: str, scene: Scene) -> None:
    begin, stop = STOPS[how]
    for again in range(2):
        run_id = begin(scene)
        assert run_id in planned(scene)
        stop(scene)
        for _ in range(2):
            assert run_id not in planned(scene)
            assert counted(scene) == 0
            run = scene.coordinator.run(ADMIN, run_id)
            assert run.state in (RunState.FAILED, RunState.CANCELLED)
            assert run.reason in ("no", "cancelled by an admin")
            scene.restart(outlived=True)
        assert scene.coordinator._registry.run(run_id).attempt == again + 1
    assert begin(scene) == run_id
    scene.settle()
    assert scene.coordinator.run(ADMIN, run_id).state == RunState.DONE
    assert run_id not in scene.coordinator._state.done


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """No failure can be recorded, until this is undone."""

    def refuse(*_: object) -> NoReturn:
        raise StorageUnavailable("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(Registry, "fail", refuse)
        patched.setattr(retries, "pause_after", lambda failures: 0.0)
        yield patched


def test_a_failure_that_could_not_be_recorded_at_once_is_later(
    scene: Scene, full: pytest.MonkeyPatch
) -> None:
    run_id = evaluate(scene)
    scene.fail("evaluate", cause="no")
    assert scene.coordinator.run(ADMIN, run_id).state == RunState.RUNNING
    assert scene.coordinator.status(ADMIN).trouble
    full.undo()
    scene.coordinator.tick()
    assert scene.coordinator.status(ADMIN).trouble is None
    with pytest.raises(RunFailed, match="no"):
        scene.coordinator.evaluation(ADMIN, run_id)


def test_what_is_cancelled_or_asked_for_again_before_that_is_cancelled_or_done(
    scene: Scene, full: pytest.MonkeyPatch
) -> None:
    made = make(scene)
    scene.fail("compose", cause="no")
    scene.coordinator.cancel_compositions(RequestContext(), "ann")
    judged = evaluate(scene)
    scene.fail("evaluate", cause="no")
    assert evaluate(scene) == judged
    full.undo()
    scene.coordinator.tick()
    scene.settle()
    registry = scene.coordinator._registry
    assert registry.run(made).cause == "cancelled by an admin"
    assert registry.run(judged).state == RunState.DONE


def test_what_is_asked_for_again_before_that_waits_and_is_told_so(
    tmp_path: Path, full: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, Node(1)).trained("a", "b")
    for user in ("ann", "bob"):
        scene.coordinator.compose(asks(f"compose {user}"), user, ["+a" if user == "ann" else "+b"])
    judged = evaluate(scene)
    scene.fail("evaluate", cause="no")
    evaluate(scene, "bob")  # has the room now
    assert evaluate(scene) == judged
    full.undo()
    for outlived in (True, False):
        scene.coordinator.tick()
        assert scene.coordinator.run(ADMIN, judged).state == RunState.QUEUED
        assert scene.coordinator.evaluation(ADMIN, judged) is None
        scene.restart(outlived)
    scene.settle()
    assert scene.coordinator.run(ADMIN, judged).state == RunState.DONE


def test_a_start_and_a_composed_model_read_what_somebody_waits_for_alone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may have given up thousands."""
    coordinator = scene.coordinator
    run_id = evaluate(scene, "bob")
    scene.fail("evaluate", cause="no")
    for user in ("ann", "bob"):  # who have the same
        coordinator.compose(asks(f"other {user}"), user, ["+a"])
    assert scene.status().work == ()
    read, usual = set[str](), Registry.runs

    def noting(registry: Registry, *which: Any, **more: Any) -> list[RunRecord]:
        found = usual(registry, *which, **more)
        read.update(run.run_id for run in found)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Registry, "runs", noting)
        scene.restart(outlived=True)
    coordinator = scene.coordinator
    assert run_id not in read
    assert not coordinator._board._left
    coordinator.compose(asks("unrelated"), "bob", ["+b"])
    asked = statements(coordinator._registry, coordinator.version)
    assert not [said for said, _ in asked if "run.work" in said and "run.model IN" not in said]
    coordinator.compose(asks("as before"), "bob", ["+a", "+b"])
    for _ in range(2):
        assert [one.run_id for one in scene.status().work] == [run_id]
        scene.restart(outlived=True)


def test_a_purge_ends_what_stopped_of_a_model_that_somebody_has_or_awaits(scene: Scene) -> None:
    """Of others, who may have given up thousands, it reads none."""
    coordinator, registry = scene.coordinator, scene.coordinator._registry
    judged, made = evaluate(scene), make(scene)
    foreseen = coordinator.evaluate(RequestContext(), "ann", terms=["+a", "-b"]).run_id
    for _ in range(3):
        scene.launcher.running()[0].outcome = Raised("no")
        coordinator.tick()
    assert {registry.run(one).state for one in (judged, made, foreseen)} == {RunState.FAILED}
    owed = coordinator.evaluate(RequestContext(), "ann", terms=["-a", "+b"]).run_id
    purge = partial(coordinator.remove, RequestContext(), "b", True)
    asked = [said for said, _ in statements(registry, purge) if "LIKE" in said]
    assert {registry.run(one).state for one in (judged, made, owed)} == {RunState.WITHDRAWN}
    assert not scene.running()
    assert registry.run(foreseen).state == RunState.FAILED
    assert scene.status().work == ()
    assert all("kind IN" in said or "run.number IN" in said for said in asked)


def test_what_another_asks_for_again_is_theirs(scene: Scene) -> None:
    """Two users have the same model, whose evaluation is one run."""
    run_id = evaluate(scene)
    scene.fail("evaluate", cause="no")
    assert evaluate(scene, "bob") == run_id
    for _ in range(2):
        assert scene.coordinator._registry.owed_of(["ann", "bob"]) == {"bob": 1}
        assert scene.coordinator._state.runs[run_id].user == "bob"
        assert scene.coordinator.run(ADMIN, run_id).about == "evaluating the model of bob"
        assert [one.about for one in scene.status().work] == ["evaluating the model of bob"]
        scene.restart(outlived=True)


def test_of_compositions_that_stopped_a_cancel_reads_the_one_that_is_awaited(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user may have given up thousands."""
    coordinator = scene.coordinator
    made = make(scene)
    scene.fail("compose", cause="no")
    given = asks("another"), "ann", ["+a", "-b"], CompositionMethod(method="tsv")
    awaited = coordinator.start_composition(*given).run_id
    scene.fail("compose", cause="no")
    read, usual = set[str](), Registry.runs

    def noting(registry: Registry, *which: Any, **more: Any) -> list[RunRecord]:
        found = usual(registry, *which, **more)
        read.update(run.run_id for run in found)
        return found

    monkeypatch.setattr(Registry, "runs", noting)
    assert coordinator.cancel_compositions(RequestContext(), "ann").cancelled == ()
    assert read == {awaited}
    assert made != awaited
    assert coordinator._registry.awaited_run("ann") == []
