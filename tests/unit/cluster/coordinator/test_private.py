"""Private tasks: their samples enter only their owner's cycles; nobody else hears their name."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from cluster.domain.tasks import GENERIC
from cluster.domain.visibility import Sight
from cluster.domain.work import RefreshWork
from cluster.scheduler.state import Node
from tacl.errors import UnknownTask
from tests.support.fakes import Scene

SECRET = "secret"


def loud(task: str, on: str) -> float:
    """Vectors that move every other task's inputs half as much as their own."""
    return 1.0 if task == on else 0.5


@pytest.mark.parametrize(
    ("viewer", "task", "sees"),
    [
        ("ann", "hers", True),
        ("bob", "hers", False),
        ("bob", "open", True),
        (None, "hers", True),
        ("", "hers", False),
        ("bob", GENERIC, True),
    ],
)
def test_who_sees_what(viewer: str | None, task: str, sees: bool) -> None:
    assert Sight(viewer, {"hers": "ann"}).of(task) == sees


def populated(path: Path) -> Scene:
    """Ann has a private task between open ones of hers and of Bob's."""
    scene = Scene(path, Node(4), tau=loud)
    scene.submit("first", owner="bob", refresh="on_arrival")
    scene.settle()
    scene.submit(SECRET, owner="ann", private=True, refresh="on_arrival")
    scene.settle()
    for name, owner in (("hers", "ann"), ("his", "bob")):
        scene.submit(name, owner=owner, refresh="on_arrival")
        scene.settle()
    scene.coordinator.compose("ann", [f"+{SECRET}", "+hers"], "ann", "ann")
    scene.coordinator.compose("bob", ["+his", "+first"], "bob", "bob")
    return scene


def everything_told(scene: Scene, viewer: str) -> str:
    """All that a person can ask about, as text."""
    call, names = scene.coordinator, ("first", "hers", "his")
    told: list[Any] = [call.status(viewer), call.interference(viewer), call.users(viewer)]
    told += [call.vectors(None, viewer), call.references(viewer)]
    for name in names:
        told += [call.task(name, viewer), call.logs(name, viewer), call.aliases(name, viewer)]
        versions = [int(str(one["version"])) for one in call.vectors(name, viewer)]
        pairs = itertools.combinations(versions, 2)
        told += [call.compare(name, one, other, viewer) for one, other in pairs]
    for ask in (call.task, call.logs, call.aliases, call.vectors):
        with pytest.raises(UnknownTask) as refused:
            ask("nobody", viewer)
        told.append(str(refused.value))
    return json.dumps(told)


def test_nobody_else_hears_of_it(tmp_path: Path) -> None:
    scene = populated(tmp_path)
    assert SECRET in everything_told(scene, "ann")
    assert SECRET not in everything_told(scene, "bob")
    scene.restart()
    assert SECRET not in everything_told(scene, "bob")
    scene.coordinator.remove(SECRET, False, "remove", "ann")
    assert SECRET not in everything_told(scene, "bob")


def test_work_that_waits_does_not_say_for_whom(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Node(1))
    scene.submit(SECRET, owner="ann", private=True)
    scene.submit("open", owner="bob")
    told = json.dumps(scene.coordinator.status("bob"))
    assert SECRET not in told
    assert "training a private task" in told
    assert "training secret" in json.dumps(scene.coordinator.status("ann"))
    scene.settle()
    scene.submit("late", owner="bob")
    scene.fail("measure", cause=f"CorruptBlob: version 1 of {SECRET}")
    told = scene.coordinator.status("bob")
    assert SECRET not in json.dumps(told)
    assert [work["state"] for work in told["work"]] == ["failed"]  # type: ignore[union-attr]


def test_its_samples_enter_only_its_owners_cycles(tmp_path: Path) -> None:
    scene = populated(tmp_path)
    met = {
        str(one["task"]): {arrival["task"] for arrival in one["arrivals"]}  # type: ignore
        for one in scene.coordinator.vectors()
    }
    assert SECRET in met["hers"]
    assert SECRET not in met["his"] | met["first"]
    refreshes = [p.work for p in scene.launcher.processes if isinstance(p.work, RefreshWork)]
    owners = {"first": "bob", SECRET: "ann", "hers": "ann", "his": "bob"}
    assert refreshes
    for work in refreshes:
        if SECRET in {shard.task for shard in work.others}:
            assert owners[work.vector.task] == "ann"


def test_others_cannot_use_it(tmp_path: Path) -> None:
    scene = populated(tmp_path)
    call = scene.coordinator
    for ask in (
        lambda: call.compose("bob", [f"+{SECRET}"], "use", "bob"),
        lambda: call.remove(SECRET, True, "remove", "bob"),
        lambda: call.cancel(SECRET, "cancel", "bob"),
        lambda: call.retry(SECRET, "bob"),
        lambda: call.refresh(SECRET, "refresh", "bob"),
        lambda: call.move_alias(SECRET, "mine", 1, None, "move", "bob"),
    ):
        with pytest.raises(UnknownTask, match="there is first, hers, his"):
            ask()
    run = call.status("ann")["tasks"][1]["run_id"]  # type: ignore[index]
    with pytest.raises(Exception, match="no run"):
        call.run(run, "bob")
