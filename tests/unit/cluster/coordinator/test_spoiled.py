"""Heads that saw a purged task answer nobody from then on; their files are found and deleted
without the lock."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any, NoReturn

import pytest

from cluster.coordinator import retries
from cluster.coordinator.outdated import Outdated
from cluster.domain.compositions import Fitted
from cluster.domain.status import RunState
from cluster.domain.work import EvaluateWork, FitWork
from cluster.registry import Registry, RunRecord
from cluster.scheduler.state import Node
from tests.support.fakes import ADMIN, FakeProcess, Scene, asks
from tests.support.lost import killed_after_removing
from tests.support.statements import statements


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Heads of a and b were fitted together."""
    found = Scene(tmp_path, Node(4))
    found.trained("a", heads="fitted")
    found.trained("b", heads="fitted")
    found.coordinator.compose(asks("ann", "ann"), "ann", ["+a", "+b"])
    return found


def seen(scene: Scene, *tasks: str) -> set[str]:
    """Files of the fits that have all of these tasks."""
    return {
        digest
        for _, result in scene.coordinator._registry.fits()
        if {one.task for one in result.heads} >= {*tasks}
        for one in result.heads
        for digest in (one.head, one.frozen, result.novelty or "")
    }


def fits(scene: Scene) -> list[list[str]]:
    found = scene.coordinator._registry.fits()
    return [sorted(one.task for one in result.heads) for _, result in found]


def there(scene: Scene, digests: set[str]) -> set[str]:
    return {*filter(scene.home.blobs().exists, digests)}


def purge(scene: Scene, task: str) -> None:
    scene.coordinator.remove(asks(f"purge {task}"), task, True)


def refuse(*_: object) -> NoReturn:
    raise OSError("no space left on device")


def fit_of(scene: Scene, task: str) -> FakeProcess:
    """That runs, of a task that arrives."""
    scene.arrive(task, heads="fitted")
    while not any(isinstance(work, FitWork) for work in scene.running()):
        scene.finish_process(scene.launcher.running()[0])
    return scene.process("fit")


def test_no_fit_is_read_under_the_lock(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    spoiled, others = seen(scene, "b"), seen(scene, "a") - seen(scene, "b")
    assert there(scene, spoiled | others) == spoiled | others
    lock, read, real = scene.coordinator._lock._lock, list[bool](), Fitted.model_validate_json

    def noting(text: Any) -> Fitted:
        read.append(lock._is_owned())  # type: ignore[attr-defined]
        return real(text)

    monkeypatch.setattr(Fitted, "model_validate_json", noting)
    purge(scene, "b")
    assert not read
    scene.coordinator.tick()
    assert read
    assert not any(read)
    assert there(scene, spoiled | others) == others


def test_their_fits_are_forgotten_once_the_files_are_gone(scene: Scene) -> None:
    """Nothing reads them again, nor a home that is opened anew."""
    assert fits(scene) == [["a"], ["a", "b"]]
    purge(scene, "b")
    scene.coordinator.tick()
    assert fits(scene) == [["a"]]
    assert scene.coordinator._registry.fits_of_purged() == {}
    scene.restart()
    scene.settle()
    assert fits(scene) == [["a"]], "and the heads of what is left were there"


def test_a_fit_that_runs_brings_nothing_after_a_purge(scene: Scene) -> None:
    process = fit_of(scene, "c")
    purge(scene, "b")
    assert process.cancelled
    scene.settle()
    assert fits(scene) == [["a"], ["a", "c"]]


def test_a_fit_that_ends_while_it_is_decided_stays(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoiled, real = seen(scene, "b"), Registry.referenced
    with monkeypatch.context() as patch:
        patch.setattr(scene.coordinator._erasing, "tick", lambda: None)
        purge(scene, "b")
        process = fit_of(scene, "c")

    def late(registry: Registry, asked: frozenset[str]) -> Any:
        found = real(registry, asked)
        if not process.outcome:
            scene.finish_process(process)
        return found

    monkeypatch.setattr(Registry, "referenced", late)
    scene.coordinator.tick()
    assert fits(scene) == [["a"], ["a", "c"]]
    assert there(scene, spoiled) == set()
    assert there(scene, seen(scene, "c")) == seen(scene, "c") != set()


def test_a_task_that_is_purged_while_it_is_decided_takes_its_own(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    every, real = seen(scene), Registry.referenced
    purge(scene, "b")

    def late(registry: Registry, asked: frozenset[str]) -> Any:
        found = real(registry, asked)
        purge(scene, "a")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Registry, "referenced", late)
        scene.coordinator.tick()
    scene.coordinator.tick()
    assert there(scene, every) == set()
    assert fits(scene) == []


@pytest.mark.parametrize("deleted", [0, 1])
def test_a_death_leaves_them_to_the_next_coordinator(
    deleted: int, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoiled = seen(scene, "b")
    purge(scene, "b")
    with killed_after_removing(deleted):
        scene.coordinator.tick()
    scene.restart()
    assert [fit.run_id for fit in scene.coordinator._execution.heads.with_task("b").fits] == []
    scene.coordinator.tick()
    assert there(scene, spoiled) == set()
    assert fits(scene) == [["a"]]


def test_a_collection_of_garbage_meanwhile_leaves_none_on_the_disk(scene: Scene) -> None:
    """It looked before the purge, and found that nobody needs the heads any more."""
    spoiled, coordinator = seen(scene, "b"), scene.coordinator
    outdated = Outdated(coordinator._execution.heads.fits, coordinator._state)
    coordinator.compose(asks("nothing of them", "ann"), "ann", ["+a"])
    purge(scene, "b")
    outdated._needed = set()
    coordinator._forget_fits(outdated)
    coordinator.tick()
    assert there(scene, spoiled) == set()


def test_they_are_freed_when_nobody_waits(scene: Scene) -> None:
    """Of thousands of tasks that takes about as long as all else that a purge does."""
    (fit,) = scene.coordinator._execution.heads.with_task("b").fits
    spoiled = weakref.ref(fit)
    del fit
    purge(scene, "b")
    assert spoiled() is not None
    scene.coordinator.tick()
    assert spoiled() is None


@pytest.mark.parametrize("restarts", [False, True])
def test_an_evaluation_with_them_ends_with_the_task(
    restarts: bool, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a model that has no vector of it. Of hundreds that wait, nobody reads the work."""
    coordinator, user = scene.coordinator, asks("bob", "bob")
    scene.trained("c", heads="fitted")
    coordinator.compose(user, "bob", ["+a", "+c"])
    coordinator.evaluate(asks("evaluate", "bob"), "bob")
    process = scene.process("evaluate")
    assert isinstance(process.work, EvaluateWork)
    mine = {one.fitted_head or "" for one in process.work.tasks}
    if restarts:
        scene.restart()
        coordinator = scene.coordinator
    with monkeypatch.context() as patched:
        patched.delattr(RunRecord, "work")
        asked = statements(coordinator._registry, lambda: purge(scene, "b"))
    assert process.cancelled
    read = [values for said, values in asked if "run.work" in said]
    assert not [values for values in read if {"evaluate", RunState.QUEUED} <= {*values}]
    coordinator.tick()
    assert there(scene, mine) == set()
    again = coordinator.evaluate(asks("again", "bob"), "bob")
    assert again.run_id != process.work.run_id
    scene.settle()
    assert coordinator.evaluation(ADMIN, again.run_id) is not None


def test_an_evaluation_whose_failure_is_not_recorded_keeps_none_of_them(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan has given it up, and the registry owes it still."""
    monkeypatch.setattr(retries, "pause_after", lambda failures: 0.0)
    scene.trained("c", heads="fitted")
    scene.coordinator.compose(asks("bob", "bob"), "bob", ["+a", "+c"])
    scene.coordinator.evaluate(asks("evaluate", "bob"), "bob")
    run_id, spoiled = scene.process("evaluate").work.run_id, seen(scene, "b")
    registry = scene.coordinator._registry
    with monkeypatch.context() as full:
        full.setattr(Registry, "fail", refuse)
        scene.fail("evaluate")
        purge(scene, "b")
        scene.coordinator.tick()
    assert there(scene, spoiled) == set()
    scene.coordinator.tick()
    assert registry.run(run_id).state == RunState.WITHDRAWN
    assert scene.coordinator.status(ADMIN).trouble is None


def test_an_evaluation_with_other_heads_goes_on(scene: Scene) -> None:
    scene.coordinator.compose(asks("bob", "bob"), "bob", ["+a"])
    scene.coordinator.evaluate(asks("evaluate", "bob"), "bob")
    purge(scene, "b")
    assert not scene.process("evaluate").cancelled
