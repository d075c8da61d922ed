"""Compositions that are more than a sum, as the coordinator looks after them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from cluster.domain.base import BlobRef, RequestContext
from cluster.domain.compositions import Adapt, CompositionMethod, Fit
from cluster.domain.tasks import VectorRef
from cluster.domain.work import ComposeWork, Progress
from tacl.errors import (
    BadConfig,
    BadName,
    BadRecipe,
    CorruptBlob,
    EmptySplit,
    MixedRegimes,
    RunFailed,
    TaclError,
    TooFewClasses,
    UnknownTask,
)
from tests.support.composing import ATLAS, fitted, made, make, rows
from tests.support.fakes import ADMIN, Scene, asks, shard_blob


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path).trained("digits", "shapes")


def test_it_is_queued_made_and_becomes_the_users_model(scene: Scene) -> None:
    before = scene.coordinator.compose(asks("before"), "alice", ["+digits"])
    asked = make(scene, "-0.5*shapes +digits")
    assert (asked.state, asked.method, asked.model) == ("running", "ties", None)
    assert asked.terms == ("+digits@v1", "-0.5*shapes@v1")
    assert scene.coordinator.composition(ADMIN, "alice") == before
    (work,) = scene.coordinator.status(ADMIN).work
    assert work.about == "composing by ties the model of alice"
    scene.finish("compose")
    found = scene.coordinator.composition_run(ADMIN, "alice", asked.run_id)
    model = scene.coordinator.composition(ADMIN, "alice")
    assert (found.state, found.model) == ("ready", model)
    assert model.merged is not None
    assert [term.coefficient for term in model.terms] == [1.0, -0.5]
    assert found.report is not None
    assert found.report.accuracies["digits"].after == 0.8
    listed = scene.coordinator.users(ADMIN)
    assert (listed[0].method, listed[0].digest) == ("ties", model.digest)
    scene.restart()
    assert scene.coordinator.composition(ADMIN, "alice") == model
    assert not scene.running()


def test_the_same_inputs_are_one_run(scene: Scene) -> None:
    first = made(scene)
    started = len(scene.launcher.processes)
    scene.coordinator.compose(asks("a sum"), "alice", ["+digits"])
    again = make(scene, "+shapes +digits", request_id="two")
    assert (again.run_id, again.state) == (first.run_id, "ready")
    assert len(scene.launcher.processes) == started
    assert scene.coordinator.composition(ADMIN, "alice").method == "ties"  # as if it were made now
    others = [
        make(scene, "+digits -shapes", request_id="3"),
        make(scene, making=CompositionMethod(method="iso"), request_id="4"),
        make(scene, user="bob", request_id="5"),
        make(scene, making=ATLAS, request_id="6"),
        make(scene, making=CompositionMethod(method="atlas", select="blockwise:1"), request_id="7"),
        make(scene, making=fitted(scene), request_id="8"),
    ]
    assert len({first.run_id, *(one.run_id for one in others)}) == 7


def test_coefficients_of_blocks_are_kept(scene: Scene) -> None:
    model = made(scene, making=fitted(scene)).model
    assert model is not None
    assert [term.by_block for term in model.terms] == [{"a": 0.25, "b": 1.5}] * 2
    assert model.merged is None
    assert model.target is not None
    assert model.target.classes == ("yes", "no")
    assert scene.coordinator.composition(ADMIN, "alice") == model
    work = scene.launcher.processes[-1].work
    assert isinstance(work, ComposeWork)
    assert [task.name for task in work.tasks] == ["digits", "shapes"]
    assert [shard.task for shard in work.probes] == ["digits", "shapes"]
    assert scene.coordinator.evaluate(ADMIN, "alice")


@pytest.mark.parametrize("meanwhile", ["a sum", "another method"])
def test_who_composes_something_else_meanwhile_keeps_that(scene: Scene, meanwhile: str) -> None:
    asked = make(scene)
    if meanwhile == "a sum":
        scene.coordinator.compose(asks("a sum"), "alice", ["+digits"])
    else:
        make(scene, making=ATLAS, request_id="two")
    scene.settle()
    assert scene.coordinator.composition_run(ADMIN, "alice", asked.run_id).state == "ready"
    expected = "sum" if meanwhile == "a sum" else "atlas"
    assert scene.coordinator.composition(ADMIN, "alice").method == expected


def test_a_learner_that_dies_and_a_coordinator_that_dies(scene: Scene) -> None:
    asked = make(scene)
    scene.die("compose")
    found = scene.coordinator.composition_run(ADMIN, "alice", asked.run_id)
    assert (found.state, found.attempt) == ("running", 2)
    scene.restart()
    assert scene.running()[0].run_id == asked.run_id
    scene.settle()
    assert scene.coordinator.composition(ADMIN, "alice").method == "ties"


def test_what_failed_says_why_and_is_tried_again_when_asked_again(scene: Scene) -> None:
    asked = make(scene)
    scene.fail("compose", cause="BadRecipe: no")
    found = scene.coordinator.composition_run(ADMIN, "alice", asked.run_id)
    assert (found.state, found.reason) == ("failed", "BadRecipe: no")
    again = scene.coordinator.retry(RequestContext(), "digits")
    assert again.retried == ()  # it is nobody's but alice's
    assert make(scene, request_id="two").state == "running"
    scene.settle()
    assert scene.coordinator.composition(ADMIN, "alice").method == "ties"


def test_it_tells_how_far_it_is(scene: Scene) -> None:
    run_id = make(scene, making=ATLAS).run_id
    scene.coordinator.report_progress(run_id, Progress(step=3, steps=9, loss=0.5), 1)
    found = scene.coordinator.composition_run(ADMIN, "alice", run_id)
    assert (found.step, found.steps, found.loss) == (3, 9, 0.5)
    for attempt in (2, 1):  # one that is not there yet, and one that is no more
        with pytest.raises(RunFailed, match="not the one that runs now"):
            scene.coordinator.report_progress(run_id, Progress(step=4, steps=9, loss=0.4), attempt)
        scene.coordinator.cancel_compositions(asks("stop"), "alice")
    assert scene.coordinator.composition_run(ADMIN, "alice", run_id).step == 3


def test_what_is_cancelled_stops_and_is_made_when_asked_again(scene: Scene) -> None:
    """All that is made for the user, and nothing of anybody else's."""
    before = scene.coordinator.compose(asks("before"), "alice", ["+digits"])
    asked = [make(scene), make(scene, making=ATLAS, request_id="two")]
    bobs = make(scene, user="bob", request_id="three")
    found = scene.coordinator.cancel_compositions(asks("stop"), "alice")
    assert (found.user, found.cancelled) == ("alice", tuple(one.run_id for one in asked))
    assert [work.run_id for work in scene.running()] == [bobs.run_id]
    told = scene.coordinator.composition_run(ADMIN, "alice", asked[0].run_id)
    assert (told.state, told.reason) == ("cancelled", "cancelled by an admin")
    scene.restart()
    scene.settle()
    assert scene.coordinator.composition(ADMIN, "alice") == before
    assert scene.coordinator.composition(ADMIN, "bob").method == "ties"
    assert scene.coordinator.cancel_compositions(asks("stop"), "alice") == found  # the same request
    assert scene.coordinator.cancel_compositions(asks("again"), "alice").cancelled == ()
    make(scene, request_id="four")
    scene.settle()
    assert scene.coordinator.composition(ADMIN, "alice").method == "ties"


def test_a_result_of_other_vectors_is_refused(scene: Scene) -> None:
    asked = make(scene)
    process = scene.process("compose")
    work = process.work
    assert isinstance(work, ComposeWork)
    process.work = work.model_copy(update={"terms": work.terms[:1]})
    scene.finish_process(process)
    found = scene.coordinator.composition_run(ADMIN, "alice", asked.run_id)
    assert found.state == "failed"
    assert "other vectors" in str(found.reason)


BAD: list[tuple[dict[str, Any], type[TaclError], str]] = [
    ({"user": "a b"}, BadName, "user"),
    ({"terms": "+nobody"}, UnknownTask, "there are digits, shapes"),
    ({"terms": "*"}, BadRecipe, "term"),
    ({"terms": "-digits", "making": ATLAS}, BadRecipe, "this recipe adds none"),
    ({"making": CompositionMethod(method="ties", select="blockwise:1")}, BadConfig, "atlas"),
    ({"making": CompositionMethod(method="sum")}, BadConfig, "needs no run"),
]


@pytest.mark.parametrize(("changes", "error", "words"), BAD)
def test_refusals_store_nothing(
    scene: Scene, changes: dict[str, Any], error: type[TaclError], words: str
) -> None:
    with pytest.raises(error, match=words):
        make(scene, **changes)
    assert scene.coordinator._registry.runs(kinds=("compose",)) == []


def test_bad_rows_are_refused(scene: Scene) -> None:
    gone = BlobRef(digest="0" * 64, rows=2)
    for fit, error in (
        (Fit(classes=("yes", "no"), shots=gone), CorruptBlob),
        (Fit(classes=("yes", "no"), shots=rows(scene), held_out=gone), CorruptBlob),
        (Fit(classes=("yes",), shots=rows(scene)), TooFewClasses),
        (Fit(classes=("yes", "no"), shots=BlobRef(digest="", rows=0)), EmptySplit),
    ):
        with pytest.raises(error):
            make(scene, making=CompositionMethod(method="atlas", fit=fit))
    assert scene.coordinator._registry.runs(kinds=("compose",)) == []


def test_new_classes_without_labels_need_a_text_tower(scene: Scene) -> None:
    adapt = Adapt(inputs=shard_blob(scene.home, "new"), classes=("yes", "no"))
    scene.coordinator._base = scene.coordinator._base.model_copy(update={"head_kind": "prototype"})
    with pytest.raises(BadConfig, match="--fit"):
        make(scene, making=CompositionMethod(method="atlas", adapt=adapt))
    old = adapt.model_copy(update={"classes": ()})
    assert make(scene, making=CompositionMethod(method="atlas", adapt=old)).state == "running"


def test_ordinary_vectors(scene: Scene) -> None:
    registry = scene.coordinator._registry
    real = registry.pinned

    def ordinary(places: Collection[tuple[str, int]]) -> dict[tuple[str, int], VectorRef]:
        ordinary = {"regime": "ordinary"}
        return {place: one.model_copy(update=ordinary) for place, one in real(places).items()}

    registry.pinned = ordinary  # type: ignore[method-assign]
    with pytest.raises(MixedRegimes, match="digits@v1, shapes@v1: ordinary.*tacl import"):
        make(scene)
