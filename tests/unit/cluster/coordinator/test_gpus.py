"""Work with vectors is told which part of a GPU it has, and keeps it when the coordinator dies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.domain.compositions import CompositionMethod
from cluster.domain.outcomes import Gone
from cluster.domain.work import VectorWork
from cluster.scheduler.plan import DEATHS
from cluster.scheduler.queue import free
from cluster.scheduler.state import ONE_CPU, Needs, Node
from tests.support.fakes import ADMIN, FakeProcess, Scene, asks

HALF = Needs(1, 1, 0.5)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A node with a GPU, of whose half a task has learned, and one without."""
    scene = Scene(tmp_path, Node(2, 1), Node(2))
    scene.submit("digits", gpus_per_worker=0.5, heads="fitted")
    scene.finish("train", "digits")
    return scene


def evaluates(scene: Scene) -> FakeProcess:
    scene.settle()
    scene.coordinator.compose(asks("compose"), "alice", ["+digits"])
    scene.coordinator.evaluate(asks("evaluate"), "alice")
    return scene.process("evaluate")


def given(process: FakeProcess) -> float:
    assert isinstance(process.work, VectorWork)
    return process.work.gpus


def written(scene: Scene, process: FakeProcess) -> dict[str, object]:
    return json.loads(scene.coordinator._registry.run(process.work.run_id).written)


def test_each_kind_is_told_what_it_was_given(scene: Scene) -> None:
    scene.arrive("signs", gpus_per_worker=0.125)
    evaluates(scene)
    making = CompositionMethod(method="ties")
    scene.coordinator.start_composition(asks("ties"), "bob", ["+digits", "+signs"], making)
    works = [one for one in scene.launcher.processes if isinstance(one.work, VectorWork)]
    assert {one.work.kind for one in works} == {"measure", "fit", "evaluate", "compose"}
    assert {(one.needs, given(one)) for one in works} == {(HALF, 0.5)}


def test_what_has_none_is_recorded_as_it_always_was(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Node(2, 1))
    scene.submit("digits")
    scene.finish("train", "digits")
    process = evaluates(scene)
    assert process.needs == ONE_CPU
    assert "gpus" not in written(scene, process)


def test_the_next_coordinator_counts_what_a_learner_has(scene: Scene) -> None:
    """Not what it would be given now: the node may have come after it began."""
    process = evaluates(scene)
    scene.launcher.room = (Node(2, 2), Node(2, 0))
    scene.restart(outlived=True)
    assert scene.process("evaluate") is process
    assert free(scene.coordinator._execution.state) == Node(3, 1.5)
    scene.finish("evaluate")
    scene.launcher.room = (Node(4),)
    scene.coordinator.tick()
    scene.coordinator.evaluate(asks("on a CPU"), "alice", terms=["-digits"])
    process = scene.process("evaluate")
    scene.launcher.room = (Node(2, 1), Node(2))
    scene.restart(outlived=True)
    assert scene.process("evaluate") is process
    assert free(scene.coordinator._execution.state) == Node(3, 1)


def test_where_its_gpu_is_lost_with_its_node_it_goes_on_on_a_cpu(scene: Scene) -> None:
    process = evaluates(scene)
    run_id = process.work.run_id
    assert process.needs == HALF
    scene.launcher.room = (Node(2),)
    process.outcome = Gone("the node was lost")
    scene.coordinator.tick()
    again = scene.process("evaluate")
    assert (again.needs, given(again), again.work.attempt) == (ONE_CPU, 0, 2)
    assert "gpus" not in written(scene, again)
    assert scene.coordinator._registry.run(run_id).deaths == 0
    scene.finish("evaluate")
    assert scene.coordinator.run(ADMIN, run_id).state == "done"


def test_one_that_was_never_placed_is_ended_and_its_place_waited_for_no_more(scene: Scene) -> None:
    process = evaluates(scene)
    scene.launcher.room = (Node(2),)
    scene.coordinator.tick()
    assert process.cancelled
    again = scene.process("evaluate")
    assert (again.needs, again.work.attempt) == (ONE_CPU, 2)
    assert scene.coordinator.run(ADMIN, again.work.run_id).state == "running"


def test_that_it_was_ended_so_is_no_death_of_it(scene: Scene) -> None:
    """In the registry as in the plan: it may die as often as any other."""
    run_id = evaluates(scene).work.run_id
    scene.launcher.room = (Node(2),)
    scene.coordinator.tick()
    for deaths in range(DEATHS + 1):
        assert scene.coordinator._registry.run(run_id).deaths == deaths
        scene.restart(outlived=True)
        scene.coordinator.tick()
        assert scene.coordinator.status(ADMIN).trouble is None
        scene.die("evaluate")
    assert scene.coordinator.run(ADMIN, run_id).state == "failed"


def test_what_it_waits_for_is_said(scene: Scene) -> None:
    scene.launcher.room = (Node(4, 1),)
    scene.settle()
    scene.coordinator.tick()
    for number in range(2):
        scene.submit(f"other{number}", gpus_per_worker=0.5)
    scene.coordinator.compose(asks("compose"), "alice", ["+digits"])
    run = scene.coordinator.evaluate(asks("evaluate"), "alice")
    told = scene.coordinator.run(ADMIN, run.run_id)
    assert told.reason is not None
    assert told.reason.startswith("needs 1 CPU and 0.5 GPUs, 2 of 4 CPUs free and 0 of 1 GPU free")
    assert told.reason.count("which gives way") == 1
