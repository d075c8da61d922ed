"""Heads that are fitted again: when, of which tasks together, and who answers with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.coordinator import erasing, garbage, lists
from cluster.coordinator.lists import Lists
from cluster.domain.compositions import CompositionMethod, Fitted
from cluster.domain.methods import head_blobs
from cluster.domain.outcomes import Finished
from cluster.domain.work import ComposeWork, EvaluateWork, FitWork
from cluster.registry import erasure
from cluster.scheduler.state import Node, State
from cluster.storage.listed import listed_tasks
from tests.support.fakes import ADMIN, Scene, asks


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, Node(4))


def fits(scene: Scene) -> list[list[str]]:
    """Of every fit that was started, its tasks."""
    works = [process.work for process in scene.launcher.processes]
    lists = [one.listed for one in works if isinstance(one, FitWork)]
    blobs = scene.home.blobs()
    return [[t.vector.task for t in listed_tasks(blobs, one)] for one in lists]


def compose(scene: Scene, user: str, *terms: str) -> None:
    scene.coordinator.compose(asks(f"{user} {terms}", user), user, list(terms))


def heads(scene: Scene, user: str) -> dict[str, str]:
    """What the heads of a user's model hold, by task."""
    model, blobs = scene.coordinator.composition(ADMIN, user), scene.home.blobs()
    return {t.vector.task: blobs.read(t.vector.head_blob).decode() for t in model.terms}


def beside(task: str, *names: str) -> str:
    return f"head of {task} beside {list(names)}"


def test_heads_are_fitted_together_once_vectors_rest(scene: Scene) -> None:
    scene.submit("a", heads="fitted")
    assert fits(scene) == []
    scene.settle()
    scene.submit("b", heads="fitted")
    scene.submit("as_trained")
    scene.settle()
    assert [fits(scene)[0], fits(scene)[-1]] == [["a"], ["a", "b"]]
    assert len(fits(scene)) <= 3
    scene.restart()
    scene.settle()
    assert len(fits(scene)) <= 3, "what was fitted is not fitted again"


def test_a_model_is_there_at_once_and_answers_with_fitted_heads_ever_after(scene: Scene) -> None:
    scene.submit("a", heads="fitted")
    scene.submit("b", heads="fitted")
    scene.finish("train", "a")
    scene.finish("train", "b")
    compose(scene, "ann", "+a", "+b")
    assert heads(scene, "ann") == {"a": "head of a", "b": "head of b"}
    scene.settle()
    fitted = {"a": beside("a", "a", "b"), "b": beside("b", "a", "b")}
    assert heads(scene, "ann") == fitted
    scene.trained("c", heads="fitted")
    assert ["a", "b", "c"] in fits(scene)
    assert heads(scene, "ann") == fitted, "what arrives later changes no answer"
    scene.restart()
    assert heads(scene, "ann") == fitted
    compose(scene, "bob", "+a", "+c", "-b")
    assert heads(scene, "bob") == {
        "a": beside("a", "a", "b", "c"),
        "b": "head of b",
        "c": beside("c", "a", "b", "c"),
    }


def test_a_head_stays_as_trained_where_that_was_asked(scene: Scene) -> None:
    scene.trained("kept")
    scene.trained("other", heads="fitted")
    compose(scene, "ann", "+kept", "+other")
    assert fits(scene) == [["other"]]
    assert heads(scene, "ann") == {"kept": "head of kept", "other": "head of other"}


def test_a_task_tells_what_its_vector_adds_to_the_frozen_base(scene: Scene) -> None:
    scene.trained("a", heads="fitted")
    found = scene.task("a")
    assert (found.accuracy_fitted, found.accuracy_frozen) == (0.9, 0.8)
    assert scene.coordinator.task(ADMIN, "a").accuracy_frozen == 0.8
    scene.trained("b")
    assert scene.task("b").accuracy_fitted is None


def test_what_private_tasks_teach_is_for_their_owner(scene: Scene) -> None:
    scene.trained("open", heads="fitted", owner="bob")
    scene.trained("ann.own", heads="fitted", owner="ann", private=True)
    assert fits(scene) == [["open"], ["ann.own", "open"]]
    compose(scene, "bob", "+open")
    assert heads(scene, "bob") == {"open": beside("open", "open")}
    compose(scene, "ann", "+open", "+ann.own")
    assert heads(scene, "ann") == {
        "ann.own": beside("ann.own", "ann.own", "open"),
        "open": beside("open", "ann.own", "open"),
    }
    told = scene.coordinator.status(asks("s", "bob"))
    assert "ann" not in told.model_dump_json()


def test_who_withholds_samples_is_not_fitted_beside_others(scene: Scene) -> None:
    scene.trained("open", heads="fitted")
    scene.trained("closed", heads="fitted", share="none")
    assert fits(scene) == [["open"]]


def test_heads_that_saw_a_purged_task_are_erased(scene: Scene) -> None:
    scene.trained("a", heads="fitted")
    scene.trained("b", heads="fitted")
    compose(scene, "ann", "+a", "+b")
    model, blobs = scene.coordinator.composition(ADMIN, "ann"), scene.home.blobs()
    saw = [model.terms[0].vector.head_blob, model.novelty or ""]
    assert blobs.read(saw[1]) == b"none of ['a', 'b']"
    scene.coordinator.collect()
    scene.coordinator.tick()
    assert all(map(blobs.exists, saw))
    scene.coordinator.remove(asks("purge"), "b", True)
    scene.settle()
    scene.coordinator.tick()
    assert not any(map(blobs.exists, saw))
    compose(scene, "ann", "+a")
    assert heads(scene, "ann") == {"a": beside("a", "a")}
    scene.restart()
    assert heads(scene, "ann") == {"a": beside("a", "a")}


def merge(scene: Scene, user: str, *terms: str, **making: Any) -> ComposeWork:
    """By TIES where nothing else is said; the work that was done."""
    how = CompositionMethod(**{"method": "ties", **making})
    key = f"{user} {terms} {making}"
    scene.coordinator.start_composition(asks(key, user), user, list(terms), how)
    work = scene.process("compose").work
    assert isinstance(work, ComposeWork)
    scene.settle()
    return work


def test_a_merged_model_answers_with_heads_of_its_own(scene: Scene) -> None:
    scene.trained("a", heads="fitted")
    scene.trained("b", heads="fitted")
    work = merge(scene, "ann", "+a", "-b")
    assert [task.train is not None for task in work.tasks] == [True, False]  # b is no answer
    own = f"{beside('a', 'a')} under {work.run_id}"
    for _ in range(2):
        assert heads(scene, "ann") == {"a": own, "b": "head of b"}
        novelty = scene.coordinator.composition(ADMIN, "ann").novelty or ""
        assert scene.home.blobs().read(novelty).decode() == f"none of ['a'] under {work.run_id}"
        scene.restart()
    scene.coordinator.evaluate(asks("evaluate", "ann"), "ann")
    evaluation = scene.process("evaluate").work
    assert isinstance(evaluation, EvaluateWork)
    assert scene.home.blobs().read(evaluation.tasks[0].fitted_head or "").decode() == own
    assert evaluation.tasks[1].fitted_head is None


@pytest.mark.parametrize("options", [{"share": "none", "heads": "fitted"}, {"heads": "trained"}])
def test_who_may_not_teach_leaves_a_merged_model_the_heads_of_the_training(
    scene: Scene, options: dict[str, Any]
) -> None:
    scene.trained("a", heads="fitted")
    scene.trained("b", **options)
    work = merge(scene, "ann", "+a", "+b")
    assert [task.train for task in work.tasks] == [None, None]
    assert heads(scene, "ann") == {"a": "head of a", "b": "head of b"}


def test_a_grid_leaves_a_sum_that_answers_as_sums_do(scene: Scene) -> None:
    scene.trained("a", heads="fitted")
    assert [task.train for task in merge(scene, "ann", "+a", method="grid").tasks] == [None]


def test_heads_of_a_merged_model_stay_while_it_is_somebodys_and_go_with_its_tasks(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "GRACE", -1.0)
    scene.trained("a", heads="fitted")
    scene.trained("b", heads="fitted")
    merge(scene, "ann", "+a", "+b")
    model, blobs = scene.coordinator.composition(ADMIN, "ann"), scene.home.blobs()
    own = [*(term.vector.head_blob for term in model.terms), model.novelty or ""]
    own += [one.frozen for one in model.fitted]
    scene.coordinator.collect()
    scene.coordinator.tick()
    assert all(map(blobs.exists, own))
    scene.coordinator.remove(asks("purge"), "b", True)
    scene.settle()
    scene.coordinator.tick()
    assert not any(map(blobs.exists, own))


def test_a_fit_that_brings_other_heads_is_no_result(scene: Scene) -> None:
    scene.submit("a", heads="fitted")
    scene.finish("train")
    while not any(isinstance(work, FitWork) for work in scene.running()):
        scene.finish_process(scene.launcher.running()[0])
    scene.end(Finished(Fitted(heads=(), metrics={})), "fit")
    (work,) = scene.coordinator.status(ADMIN).work
    assert work.state == "failed"
    assert "other vectors" in (work.reason or "")
    scene.coordinator.retry(asks("again"), "a")
    scene.settle()
    compose(scene, "ann", "+a")
    assert heads(scene, "ann") == {"a": beside("a", "a")}


def test_an_evaluation_is_of_the_heads_that_answer(scene: Scene) -> None:
    scene.trained("a", heads="fitted")
    compose(scene, "ann", "+a")
    scene.coordinator.evaluate(asks("evaluate", "ann"), "ann")
    work = scene.process("evaluate").work
    assert isinstance(work, EvaluateWork)
    read = scene.home.blobs().read
    assert read(work.tasks[0].fitted_head or "").decode() == beside("a", "a")
    assert read(work.tasks[0].frozen_head or "").decode() == "head of a on the base beside ['a']"
    assert read(work.tasks[0].head_blob).decode() == "head of a"


def test_a_task_that_is_added_and_subtracted_has_one_head(scene: Scene) -> None:
    """In answers as in evaluations, whichever version comes last."""
    scene.trained("a", heads="fitted")
    scene.trained("b", heads="fitted")
    scene.coordinator.refresh(asks("refresh"), "a")
    scene.settle()
    compose(scene, "ann", "+a@v2", "-0.5*a@v1")
    compose(scene, "bob", "+a@v1", "-0.5*a@v2")
    for user in ("ann", "bob"):
        scene.coordinator.evaluate(asks(f"evaluate {user}", user), user)
        work = scene.process("evaluate").work
        assert isinstance(work, EvaluateWork)
        model = scene.coordinator.composition(ADMIN, user)
        assert head_blobs(model) == {"a": work.tasks[0].fitted_head}
        scene.settle()


def test_the_first_fit_stays_the_first_when_the_clock_is_set_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.trained("a", heads="fitted")
    monkeypatch.setattr("time.time", lambda: 1.0)
    scene.trained("b", heads="fitted")
    compose(scene, "ann", "+a")
    for _ in range(2):
        assert heads(scene, "ann") == {"a": beside("a", "a")}
        scene.restart()


def test_the_list_of_a_fit_stays_while_it_is_owed_and_is_written_again_for_a_retry(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "GRACE", -1.0)
    monkeypatch.setattr(erasure, "LATER", -1.0)
    monkeypatch.setattr(erasing, "PACE", -1.0)
    scene.submit("a", heads="fitted")
    scene.finish("train")
    while not any(isinstance(work, FitWork) for work in scene.running()):
        scene.finish_process(scene.launcher.running()[0])
    work, blobs = scene.process("fit").work, scene.home.blobs()
    assert isinstance(work, FitWork)

    def is_there() -> bool:
        scene.coordinator.collect()
        scene.coordinator.tick()
        return blobs.exists(work.listed.digest)

    assert is_there()
    scene.fail("fit")
    assert not is_there()
    scene.restart()
    scene.coordinator.retry(asks("again"), "a")
    assert is_there()
    assert fits(scene)[-1] == ["a"]
    scene.settle()
    scene.coordinator.tick()
    assert not blobs.exists(work.listed.digest)
    compose(scene, "ann", "+a")
    assert heads(scene, "ann") == {"a": beside("a", "a")}


@pytest.mark.parametrize("how", ["failed", "withdrawn"])
def test_the_list_of_a_fit_that_stops_leaves(
    how: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "LATER", -1.0)
    monkeypatch.setattr(erasing, "PACE", -1.0)
    scene.arrive("a", heads="fitted")
    work = scene.process("fit").work
    assert isinstance(work, FitWork)
    scene.coordinator.tick()
    assert scene.home.blobs().exists(work.listed.digest)
    if how == "failed":
        scene.fail("fit")
    else:
        scene.coordinator.remove(asks("remove"), "a", False)
    scene.coordinator.tick()
    assert not scene.home.blobs().exists(work.listed.digest)
    assert scene.coordinator._registry.run(work.run_id).state == how


def test_a_fit_ends_with_a_task_of_its_own_and_with_no_other(scene: Scene) -> None:
    scene.trained("a", heads="fitted")
    scene.trained("as_trained")
    scene.arrive("b", heads="fitted")
    while not any(isinstance(work, FitWork) for work in scene.running()):
        scene.finish_process(scene.launcher.running()[0])
    process = scene.process("fit")
    scene.restart(outlived=True)
    scene.coordinator.remove(asks("other"), "as_trained", False)
    assert not process.cancelled
    scene.coordinator.remove(asks("own"), "a", False)
    assert process.cancelled
    scene.settle()
    assert fits(scene)[-1] == ["b"]


def test_a_fit_that_ends_with_its_task_while_it_is_listed_is_nothing_wrong(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write = Lists.write

    def removed_before(lists: Lists, state: State, run_id: str) -> bool:
        scene.coordinator.remove(asks("own"), "a", False)
        return write(lists, state, run_id)

    monkeypatch.setattr(Lists, "write", removed_before)
    scene.trained("a", heads="fitted")
    assert fits(scene) == []
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


def dies_before_the_list(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a fit of task a accepted."""
    with monkeypatch.context() as patch:
        patch.setattr(Lists, "write", lambda lists, state, run_id: True)
        scene.trained("a", heads="fitted")
    (work,) = scene.coordinator.status(ADMIN).work
    assert (work.kind, work.state) == ("fit", "queued"), "whoever waits is told of it at once"
    scene.restart()


def test_a_fit_whose_list_was_not_written_is_listed_by_the_next_coordinator(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies_before_the_list(scene, monkeypatch)
    scene.settle()
    assert fits(scene) == [["a"]]
    compose(scene, "ann", "+a")
    assert heads(scene, "ann") == {"a": beside("a", "a")}


def test_a_fit_that_nobody_can_list_any_more_fails_and_may_be_retried(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies_before_the_list(scene, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(lists, "fits", lambda state: {})  # champions moved meanwhile
        scene.coordinator.tick()
    (work,) = scene.coordinator.status(ADMIN).work
    assert (work.state, work.reason) == (
        "failed",
        "champions changed before its list of tasks was written",
    )
    assert fits(scene) == []
    scene.coordinator.retry(asks("again"), "a")
    scene.settle()
    assert fits(scene) == [["a"]]
