"""When the coordinator has a vector refreshed, and what becomes of it."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cluster.coordinator import handler
from cluster.domain.base import RequestContext, identity
from cluster.domain.outcomes import Finished
from cluster.domain.tasks import GENERIC
from cluster.domain.work import RefreshWork
from cluster.registry import Request
from cluster.scheduler.budget import REFRESH
from cluster.scheduler.state import Node
from jobs.console import tables
from tacl.errors import UnknownVector
from tests.support.fakes import ADMIN, Scene, asks, loud, refreshed
from tests.support.lost import lost_answer


def work_of(scene: Scene) -> RefreshWork:
    work = scene.process("refresh").work
    assert isinstance(work, RefreshWork)
    return work


def test_an_arrival_refreshes_what_disturbs_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Node(4), tau=loud)
    scene.submit("digits")
    scene.submit("shapes")
    scene.settle()
    assert [scene.task(name).version for name in ("digits", "shapes")] == [1, 1]  # both met
    scene.arrive("signs")
    scene.finish("measure")
    works = [work for work in scene.running() if isinstance(work, RefreshWork)]
    assert {work.vector.task for work in works} == {"digits", "shapes"}
    for work in works:
        others = [shard.task for shard in work.others]
        assert others == [
            t for t in (GENERIC, "digits", "shapes", "signs") if t != work.vector.task
        ]
    scene.settle()
    for name in ("digits", "shapes"):
        first, second = scene.coordinator.vectors(ADMIN, name)
        assert (second.version, second.parent, second.champion) == (2, 1, True)
        assert not first.champion
        assert scene.task(name).version == 2
    assert scene.task("signs").version == 1  # it was trained against the others
    assert scene.coordinator.interference(ADMIN).missing == 0


def test_what_is_to_stay_as_it_was_trained_is_not_refreshed(tmp_path: Path) -> None:
    scene = Scene(tmp_path, tau=loud).trained("digits", "shapes", "signs", refresh="never")
    assert all(scene.task(name).version == 1 for name in ("digits", "shapes", "signs"))


def test_a_refused_refresh_is_told_and_not_repeated(tmp_path: Path) -> None:
    scene = Scene(tmp_path, tau=loud).trained("digits", refresh="on_arrival")
    scene.arrive("shapes")
    scene.finish("measure")
    work = scene.process("refresh").work
    assert isinstance(work, RefreshWork)
    refusal = refreshed(work, scene.home.blobs(), loud, accepted=False)
    scene.end(Finished(refusal), "refresh")
    scene.settle()
    assert scene.task("digits").version == 1
    text = "the refresh was refused: its own inputs suffered"
    assert text in [event.text for event in scene.coordinator.logs(ADMIN, "digits")]
    scene.restart()
    assert not scene.running()
    assert scene.coordinator.refresh(asks("force"), "digits").run_id == work.run_id
    assert not scene.running()
    scene.arrive("signs")  # another store: worth another attempt
    scene.finish("measure")
    assert scene.process("refresh", "digits").work.run_id != work.run_id


def test_a_refresh_can_be_forced(scene: Scene) -> None:
    scene.submit("digits")
    with pytest.raises(UnknownVector, match="training"):
        scene.coordinator.refresh(asks("too early"), "digits")
    scene.settle()
    run = scene.coordinator.refresh(asks("now"), "digits")
    assert work_of(scene).first is None
    assert scene.task("digits").refresh == "running"
    assert scene.coordinator.refresh(asks("also now"), "digits") == run
    scene.settle()
    assert scene.coordinator.refresh(asks("now"), "digits") == run
    assert scene.task("digits").version == 2
    assert not scene.running()
    assert (
        scene.coordinator.refresh(asks("once more"), "digits") != run
    )  # version 2 is another vector
    second = work_of(scene)
    assert second.first is not None
    assert (second.vector.version, second.first.version) == (2, 1)
    scene.settle()
    scene.coordinator.refresh(asks("a third time"), "digits")
    third = work_of(scene)
    assert third.vector.version == 3
    assert third.first == second.first  # as it was trained


def test_a_failed_refresh_is_retried_while_it_makes_sense(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Node(4), tau=loud).trained("digits", refresh="on_arrival")
    scene.arrive("shapes")
    scene.finish("measure")
    scene.fail("refresh")
    (left,) = scene.coordinator.status(ADMIN).work
    assert (left.kind, left.state, left.reason) == ("refresh", "failed", "ValueError: no")
    assert scene.task("digits").refresh == "failed"
    assert scene.coordinator.retry(RequestContext(), "digits").retried == (left.run_id,)
    scene.fail("refresh")
    scene.arrive("signs")
    scene.finish("measure")  # another store, another refresh
    assert scene.process("refresh", "digits").work.run_id != left.run_id
    assert scene.coordinator.retry(RequestContext(), "digits").retried == ()
    assert scene.task("digits").refresh == "running"
    scene.settle()
    assert scene.task("digits").version == 2
    assert scene.coordinator.status(ADMIN).work == ()
    for _ in range(2):
        assert scene.task("digits").refresh is None
        scene.restart()


def test_what_waits_for_the_budget_of_the_next_arrivals_is_told(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(5)]
    scene = Scene(tmp_path, Node(4), tau=loud).trained(*names, refresh="on_arrival")
    assert not scene.running()
    waiting = [name for name in names if scene.task(name).refresh_waits]
    assert 0 < len(waiting) < len(names)
    balance = scene.coordinator._state.balance
    assert 0 <= balance < REFRESH
    scene.restart()
    assert not scene.running()
    assert [name for name in names if scene.task(name).refresh_waits] == waiting
    assert scene.coordinator._state.balance == balance
    told = StringIO()
    Console(file=told, width=200).print(tables.status(scene.coordinator.status(ADMIN)))
    assert f"{', '.join(waiting)}: a refresh waits" in told.getvalue()


@pytest.mark.parametrize("read_again", [False, True])
@pytest.mark.parametrize("ends", ["cancelled", "removed"])
def test_what_a_refresh_that_did_not_start_would_cost_is_left_for_others(
    tmp_path: Path, ends: str, read_again: bool
) -> None:
    scene = Scene(tmp_path, Node(1), tau=loud).trained("digits", refresh="on_arrival")
    scene.coordinator.compose(asks("compose"), "ann", ["+digits"])
    scene.arrive("shapes")
    scene.coordinator.evaluate(asks("evaluate"), "ann")
    scene.finish("measure")
    assert scene.task("digits").refresh == "queued"
    before = scene.coordinator._state.balance
    scene.coordinator._execution.unsure = read_again  # after a commit whose answer was lost
    scene.coordinator.tick()

    def require_given_back() -> None:
        found = scene.coordinator._state.balance, scene.coordinator._registry.balance()
        assert found == (before + REFRESH, before + REFRESH)

    if ends == "removed":
        scene.coordinator.remove(asks("remove"), "digits", False)
        return require_given_back()
    for number in range(2):
        scene.coordinator.cancel(asks(f"cancel {number}"), "digits")
        require_given_back()
        assert scene.coordinator.retry(asks(f"retry {number}"), "digits").retried
    scene.settle()
    assert scene.task("digits").version == 2
    require_given_back()


def test_what_was_never_accepted_costs_nothing_where_its_task_is_removed(tmp_path: Path) -> None:
    """There was room for it at once, and the registry was away."""
    scene = Scene(tmp_path, tau=loud).trained("digits")
    with lost_answer(scene, "add_run", landed=False, asked_at_once=True):
        scene.arrive("shapes")
        paid = scene.coordinator._registry.balance()
        assert scene.coordinator._state.balance < paid
        scene.coordinator.remove(asks("remove"), "shapes", False)
    scene.coordinator.tick()
    assert not scene.running()
    assert scene.coordinator._state.balance == scene.coordinator._registry.balance() == paid


def test_a_request_that_was_answered_before_answers_were_json_is_recognised(scene: Scene) -> None:
    asked = identity("refresh", {"task": "digits"})
    scene.coordinator._registry.cancel([], [], "ann", Request("now", asked, "the run of then"))
    assert scene.coordinator.refresh(asks("now"), "digits").run_id == "the run of then"


def test_a_file_that_is_missing_is_told_while_its_vector_is_the_champion(tmp_path: Path) -> None:
    scene = Scene(tmp_path).trained("digits")
    scene.coordinator.refresh(asks("refresh"), "digits")
    scene.settle()
    lost = scene.coordinator._registry.vector("digits", 2).blob
    scene.home.blobs().remove(lost)
    scene.restart()
    assert scene.task("digits").reason == f"the file of vector digits@v2 is missing: blob {lost}"
    scene.coordinator.move_alias(asks("back"), "digits", "champion", 1, 2)
    assert scene.task("digits").reason is None


def test_a_file_that_is_restored_is_missing_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was told of it is told that it is there; of two files, which one is missing still."""
    scene = Scene(tmp_path).trained("digits", "shapes")
    vector, blobs = scene.coordinator._registry.vector("digits", 1), scene.home.blobs()
    places = [blobs.local_path(digest) for digest in (vector.blob, vector.head_blob)]
    away = [place.rename(tmp_path / place.name) for place in places]
    scene.restart()
    monkeypatch.setattr(handler, "MISSING", 0.0)
    for lost, place in ((vector.head_blob, None), (vector.blob, 1), (None, 0)):
        version = scene.coordinator.status(ADMIN).version
        if place is not None:
            away[place].rename(places[place])
        scene.coordinator.tick()
        told = scene.coordinator.status(ADMIN, version).tasks
        assert [task.name for task in told] == ["digits"] * (place is not None)
        assert (scene.task("digits").reason or "None").endswith(str(lost))
