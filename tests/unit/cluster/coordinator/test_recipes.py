"""The coordinator without Ray: recipes pinned to versions, and evaluations."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from cluster.domain.base import RequestContext
from cluster.domain.tasks import VectorRef
from cluster.domain.work import EvaluateWork
from cluster.scheduler.state import Node
from tacl.errors import (
    BadName,
    BadRecipe,
    CorruptBlob,
    MixedRegimes,
    NoComposition,
    RunFailed,
    TaclError,
    UnknownTask,
    UnknownVector,
)
from tests.support.fakes import ADMIN, Scene, asks


def test_a_model_pins_versions(scene: Scene) -> None:
    scene.trained("digits", "shapes")
    model = scene.coordinator.compose(asks("one"), "alice", ["-0.5*shapes", "+digits"])
    found = [(t.vector.task, t.vector.version, t.coefficient) for t in model.terms]
    assert found == [("digits", 1, 1.0), ("shapes", 1, -0.5)]
    same = scene.coordinator.compose(asks("two"), "bob", ["digits@v1", "-0.5*shapes@champion"])
    assert same.digest == model.digest
    scene.coordinator.refresh(asks("now"), "digits")
    scene.settle()
    assert scene.coordinator.composition(ADMIN, "alice") == model
    first, second = scene.coordinator.users(ADMIN)
    assert (first.user, first.outdated) == ("alice", ("digits",))
    assert first.terms == ("+digits@v1", "-0.5*shapes@v1")
    assert second.digest == first.digest
    assert scene.coordinator.compose(asks("one"), "alice", ["-0.5*shapes", "+digits"]) == model
    moved = scene.coordinator.compose(asks("three"), "alice", ["-0.5*shapes", "+digits"])
    assert moved.terms[0].vector.version == 2
    assert scene.coordinator.composition(ADMIN, "alice") == moved
    scene.restart()
    assert scene.coordinator.composition(ADMIN, "alice") == moved
    assert scene.coordinator.composition(ADMIN, "bob") == same


@pytest.mark.parametrize(
    ("terms", "error", "message"),
    [
        (["+nobody"], UnknownTask, "there are digits, shapes"),
        (["+shapes"], UnknownVector, "it is training"),
        (["+digits@v7"], UnknownVector, "there is v1$"),
        (["+digits@best"], UnknownVector, "champion"),
        (["+digits", "-digits@v1"], BadRecipe, "twice"),
        (["*digits"], BadRecipe, "term"),
        ([], BadRecipe, "at least one"),
    ],
)
def test_bad_recipes(scene: Scene, terms: list[str], error: type[TaclError], message: str) -> None:
    scene.trained("digits").submit("shapes")
    with pytest.raises(error, match=message):
        scene.coordinator.compose(asks("one"), "alice", terms)
    with pytest.raises(NoComposition, match="alice"):
        scene.coordinator.composition(ADMIN, "alice")


def test_other_refusals_to_compose(scene: Scene) -> None:
    scene.trained("digits", "shapes")
    with pytest.raises(BadName):
        scene.coordinator.compose(asks("one"), "a b", ["+digits"])
    registry = scene.coordinator._registry
    real = registry.pinned

    def ordinary(places: Collection[tuple[str, int]]) -> dict[tuple[str, int], VectorRef]:
        found = real(places)
        shapes = found["shapes", 1].model_copy(update={"regime": "ordinary"})
        return found | {("shapes", 1): shapes}

    registry.pinned = ordinary  # type: ignore[method-assign]
    with pytest.raises(MixedRegimes, match="digits is linearized and shapes is ordinary"):
        scene.coordinator.compose(asks("two"), "alice", ["+digits", "+shapes"])


def test_a_lost_file_is_named_and_never_composed(scene: Scene) -> None:
    scene.trained("digits", "shapes")
    (vector,) = scene.coordinator.vectors(ADMIN, "digits")
    scene.home.blobs().local_path(vector.blob).unlink()
    scene.restart()
    assert vector.blob in str(scene.task("digits").reason)
    with pytest.raises(CorruptBlob, match="digits"):
        scene.coordinator.compose(asks("one"), "alice", ["+digits"])
    assert scene.coordinator.compose(asks("two"), "alice", ["+shapes"])


def test_an_import_goes_before_trainings_that_wait(tmp_path: Path) -> None:
    """A person waits for it; a coordinator that reads the registry knows that too."""
    scene = Scene(tmp_path, Node(1))
    for name in ("running", "waiting"):
        scene.submit(name)
    scene.submit("imported", vector_blob=scene.home.blobs().put(b"a vector"))
    scene.fail("train", "running")
    assert scene.process("train", "imported")
    scene.restart()
    assert scene.process("train", "imported")


def test_a_model_is_evaluated_once(scene: Scene) -> None:
    with pytest.raises(NoComposition):
        scene.coordinator.evaluate(ADMIN, "alice")
    scene.trained("digits", "shapes")
    scene.coordinator.refresh(asks("now"), "digits")
    scene.settle()
    scene.coordinator.compose(asks("one"), "alice", ["+digits", "-shapes"])
    run = scene.coordinator.evaluate(ADMIN, "alice").run_id
    assert scene.coordinator.evaluate(ADMIN, "alice").run_id == run
    assert scene.coordinator.evaluation(ADMIN, run) is None
    assert scene.coordinator.run(ADMIN, run).about == "evaluating the model of alice"
    work = scene.process("evaluate").work
    assert isinstance(work, EvaluateWork)
    assert [(task.name, task.individual and task.individual.version) for task in work.tasks] == [
        ("digits", 1),
        ("shapes", 1),
    ]
    assert work.composition.terms[0].vector.version == 2
    scene.fail("evaluate", cause="ValueError: no")
    with pytest.raises(RunFailed, match="ValueError: no"):
        scene.coordinator.evaluation(ADMIN, run)
    assert scene.coordinator.evaluate(ADMIN, "alice").run_id == run  # the same request: a look
    assert not scene.running()
    assert scene.coordinator.evaluate(asks("anew"), "alice").run_id == run
    scene.settle()
    result = scene.coordinator.evaluation(ADMIN, run)
    assert result is not None
    assert result.normalized == 0.97
    scene.restart()
    assert scene.coordinator.evaluate(ADMIN, "alice").run_id == run
    assert scene.coordinator.evaluation(ADMIN, run) == result
    assert not scene.running()


def test_a_recipe_is_evaluated_before_it_is_used(scene: Scene) -> None:
    scene.trained("digits", "shapes")
    run = scene.coordinator.evaluate(ADMIN, "alice", terms=["+digits", "-shapes"]).run_id
    work = scene.process("evaluate").work
    assert isinstance(work, EvaluateWork)
    assert [term.coefficient for term in work.composition.terms] == [1.0, -1.0]
    scene.settle()
    with pytest.raises(NoComposition):
        scene.coordinator.composition(ADMIN, "alice")
    scene.coordinator.compose(asks("one"), "alice", ["+digits", "-shapes"])
    assert scene.coordinator.evaluate(asks("two"), "alice").run_id == run  # known already
    with pytest.raises(UnknownTask):
        scene.coordinator.evaluate(asks("three"), "alice", terms=["+faces"])


def test_evaluations_are_kept_in_order_of_time(scene: Scene) -> None:
    """The accuracy matrix: a model once, and nobody else's."""
    scene.trained("faces", "digits")
    for terms in (["+faces"], ["+faces", "-0.5*digits"]):
        scene.coordinator.compose(asks(f"request {terms}"), "alice", terms)
        for materialized in (False, True):
            scene.coordinator.evaluate(RequestContext(), "alice", materialized)
            scene.settle()
    found = scene.coordinator.accuracy_history(ADMIN, "alice")
    assert found.tasks == ("faces", "digits")
    assert [row.terms for row in found.rows] == [
        ("+faces@v1",),
        ("-0.5*digits@v1", "+faces@v1"),
    ]
    assert found.rows[0].accuracies == {"faces": 0.88}
    one = found.rows[0]
    means = (one.absolute, one.unknown, one.frozen_known, one.frozen_unknown)
    assert means == (0.88, 0.7, 0.8, 0.6)
    assert found.rows[0].at <= found.rows[1].at
    assert scene.coordinator.accuracy_history(ADMIN, "bob").rows == ()
    for _, kept in scene.coordinator._registry.evaluations(None, ()):
        assert not hasattr(kept, "by_class")  # which may be large, and the history needs none of it


def test_a_model_that_is_measured_again_is_the_newest(scene: Scene) -> None:
    scene.trained("faces", "digits")
    for terms, materialized in ((["+faces"], False), (["+digits"], False), (["+faces"], True)):
        scene.coordinator.compose(asks(f"{terms} {materialized}"), "alice", terms)
        scene.coordinator.evaluate(RequestContext(), "alice", materialized)
        scene.settle()
    found = scene.coordinator.accuracy_history(ADMIN, "alice").rows
    assert [row.terms for row in found] == [("+digits@v1",), ("+faces@v1",)]
    assert found[0].at <= found[1].at
