"""Private tasks: their samples enter only their owner's cycles; nobody else hears their name."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from rich.console import Console

from cluster.domain.base import RequestContext
from cluster.domain.tasks import GENERIC
from cluster.domain.visibility import Visibility
from cluster.domain.work import RefreshWork
from cluster.scheduler.state import Node
from jobs.console import tables
from tacl.errors import NotAllowed, UnknownTask, UnknownVector
from tests.support.composing import TIES
from tests.support.fakes import ADMIN, Scene, asks, loud, versions

SECRET = "ann.secret"


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
    assert Visibility(viewer, {"hers": "ann"}).sees(task) == sees


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
    scene.coordinator.compose(asks("ann", "ann"), "ann", [f"+{SECRET}", "+hers"])
    scene.coordinator.compose(asks("bob", "bob"), "bob", ["+his", "+first"])
    return scene


def everything_told(scene: Scene, viewer: str) -> str:
    """All that a person can ask about, as text."""
    call, names, who = scene.coordinator, ("first", "hers", "his"), RequestContext(user=viewer)
    told: list[Any] = [call.status(who), call.interference(who), call.users(who)]
    told += [call.vectors(who, None), call.references(who)]
    for name in names:
        told += [call.task(who, name), call.logs(who, name), call.aliases(who, name)]
        told.append(call.interference_of(who, name))
        told.append(call.vectors(who, name))
        pairs = itertools.combinations([one.version for one in told[-1]], 2)
        told += [call.compare(who, name, one, other) for one, other in pairs]
    for ask in (call.task, call.logs, call.aliases, call.vectors, call.interference_of):
        with pytest.raises(UnknownTask) as refused:
            ask(who, "nobody")
        told.append(str(refused.value))
    return as_text(told)


def as_text(told: Any) -> str:
    return TypeAdapter(Any).dump_json(told).decode()


def test_nobody_else_hears_of_it(tmp_path: Path) -> None:
    scene = populated(tmp_path)
    assert SECRET in everything_told(scene, "ann")
    ann, call = RequestContext(user="ann"), scene.coordinator
    assert SECRET in as_text(call.interference(ann).loudest)
    assert SECRET in as_text(call.interference_of(ann, "hers").does)
    assert SECRET in as_text(call.interference_of(ann, "hers").bears)
    assert SECRET not in everything_told(scene, "bob")
    scene.restart()
    assert SECRET not in everything_told(scene, "bob")
    scene.coordinator.remove(asks("remove", "ann"), SECRET, False)
    assert SECRET not in everything_told(scene, "bob")


@pytest.mark.parametrize("verb", ["remove", "cancel"])
def test_what_met_it_does_not_say_why_it_was_withdrawn(tmp_path: Path, verb: str) -> None:
    """A refresh of an open task of its owner's, whose log and runs everybody reads."""
    scene = Scene(tmp_path, Node(1)).trained("first", "his")
    scene.submit("hers", owner="ann")
    scene.settle()
    scene.submit(SECRET, owner="ann", private=True)
    if verb == "remove":
        scene.settle()
    scene.coordinator.refresh(asks("refresh", "ann"), "hers")
    ask = getattr(scene.coordinator, verb)
    ask(asks("leave", "ann"), SECRET, *([False] if verb == "remove" else []))
    found = scene.coordinator.task(RequestContext(user="bob"), "hers").runs
    assert "a private task was" in " ".join(run.reason or "" for run in found)
    told = everything_told(scene, "bob")
    assert SECRET not in told


def test_what_has_no_vector_yet_does_not_say_what_it_waits_for(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Node(1))
    scene.submit(SECRET, owner="ann", private=True)
    scene.submit("hers", owner="ann")
    with pytest.raises(UnknownVector, match="training a private task"):
        scene.coordinator.compose(asks("use", "bob"), "bob", ["+hers"])
    with pytest.raises(UnknownVector, match=SECRET):
        scene.coordinator.compose(asks("own", "ann"), "ann", ["+hers"])


def test_a_refresh_does_not_say_on_what_it_was_measured(tmp_path: Path) -> None:
    scene = populated(tmp_path)
    call = scene.coordinator
    run_id = call.refresh(asks("refresh", "ann"), "hers").run_id
    scene.settle()
    told = {}
    for viewer in ("ann", "bob"):
        found = call.refreshed(RequestContext(user=viewer), run_id)
        assert found is not None
        told[viewer] = {pair.on for pair in found.pairs}
    assert told["ann"] - told["bob"] == {SECRET}
    assert told["bob"]


def test_work_that_waits_does_not_say_for_whom(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Node(1))
    scene.submit(SECRET, owner="ann", private=True)
    scene.submit("open", owner="bob")
    told = as_text(scene.coordinator.status(RequestContext(user="bob")))
    assert SECRET not in told
    assert "training a private task" in told
    assert "training ann.secret" in as_text(scene.coordinator.status(RequestContext(user="ann")))
    scene.settle()
    scene.arrive("late", owner="bob")
    scene.fail("measure", cause=f"CorruptBlob: version 1 of {SECRET}")
    told = scene.coordinator.status(RequestContext(user="bob"))
    assert SECRET not in as_text(told)
    assert "failed" in [work.state for work in told.work]


def test_its_samples_enter_only_its_owners_cycles(tmp_path: Path) -> None:
    scene = populated(tmp_path)
    met = {
        str(one.task): {arrival.task for arrival in one.arrivals}
        for one in versions(scene.coordinator)
    }
    assert SECRET in met["hers"]
    assert SECRET not in met["his"] | met["first"]
    refreshes = [p.work for p in scene.launcher.processes if isinstance(p.work, RefreshWork)]
    owners = {"first": "bob", SECRET: "ann", "hers": "ann", "his": "bob"}
    assert refreshes
    for work in refreshes:
        if SECRET in {shard.task for shard in work.others}:
            assert owners[work.vector.task] == "ann"


def test_who_gives_it_to_others_is_told_whose_it_is(tmp_path: Path) -> None:
    """An admin may, and its owner."""
    scene = populated(tmp_path)
    given = scene.coordinator.compose(asks("give"), "bob", [f"+{SECRET}", "+his"])
    assert given.private_to == {SECRET: "ann"}
    console = Console(width=120, record=True)
    console.print(tables.composition(given))
    told = f"{SECRET} is private to ann: bob now gets its answers and the names of its classes"
    assert told in console.export_text()
    own = scene.coordinator.compose(asks("own", "ann"), "ann", [f"+{SECRET}", "+his"])
    assert own.private_to == {}
    run = scene.coordinator.start_composition(asks("merge"), "bob", [f"+{SECRET}"], TIES)
    scene.settle()
    made = scene.coordinator.composition_run(ADMIN, "bob", run.run_id).model
    assert made is not None
    assert made.private_to == {SECRET: "ann"}


def test_only_its_owner_and_admins_measure_on_its_rows(tmp_path: Path) -> None:
    """Also where it is in another user's model, who gets its answers and no accuracy of it."""
    scene = populated(tmp_path)
    call = scene.coordinator
    call.compose(asks("give"), "bob", [f"+{SECRET}", "+his"])
    before = len(scene.launcher.processes)
    with pytest.raises(NotAllowed, match="private tasks of others") as refused:
        call.evaluate(asks("measure", "bob"), "bob")
    assert "ann" not in str(refused.value)
    scene.settle()
    assert len(scene.launcher.processes) == before
    assert call.evaluate(asks("some", "bob"), "bob", False, False, ["+his", "+first"]).run_id
    assert call.evaluate(asks("every"), "bob").run_id
    call.compose(asks("own", "ann"), "ann", [f"+{SECRET}", "+his"])
    assert call.evaluate(asks("hers", "ann"), "ann").run_id


def test_others_cannot_use_it(tmp_path: Path) -> None:
    scene = populated(tmp_path)
    call = scene.coordinator
    for ask in (
        lambda: call.compose(asks("use", "bob"), "bob", [f"+{SECRET}"]),
        lambda: call.remove(asks("remove", "bob"), SECRET, True),
        lambda: call.cancel(asks("cancel", "bob"), SECRET),
        lambda: call.retry(RequestContext(user="bob"), SECRET),
        lambda: call.refresh(asks("refresh", "bob"), SECRET),
        lambda: call.move_alias(asks("move", "bob"), SECRET, "mine", 1, None),
    ):
        with pytest.raises(UnknownTask, match="there are first, hers, his"):
            ask()
    with pytest.raises(UnknownTask, match=f"named {SECRET[:-1]}; there are first, hers, his"):
        call.task(RequestContext(user="bob"), SECRET[:-1])
    with pytest.raises(UnknownTask, match=f"did you mean {SECRET}"):
        call.task(RequestContext(user="ann"), SECRET[:-1])
    run = call.status(RequestContext(user="ann")).tasks[1].run_id  # type: ignore[index]
    with pytest.raises(Exception, match="no run"):
        call.run(RequestContext(user="bob"), run)
