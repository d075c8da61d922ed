"""Who sees the run of a composition, and how long it and its files are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.domain.base import RequestContext
from cluster.domain.compositions import CompositionMethod
from cluster.domain.outcomes import Raised
from cluster.domain.work import ComposeWork, EvaluateWork, TaskData
from tacl.errors import BadRecipe, Erased, UnknownRun, UnknownTask
from tests.support.composing import ATLAS, TIES, fitted, made, make
from tests.support.fakes import ADMIN, Scene, asks


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path).trained("digits", "shapes")


def test_nobody_elses_run_is_known(scene: Scene) -> None:
    asked = make(scene)
    with pytest.raises(UnknownRun, match="bob"):
        scene.coordinator.composition_run(ADMIN, "bob", asked.run_id)
    with pytest.raises(UnknownRun):
        scene.coordinator.composition_run(ADMIN, "alice", "no run")
    training = scene.coordinator._registry.runs(kinds=("train",))[0].run_id
    with pytest.raises(UnknownRun):
        scene.coordinator.composition_run(ADMIN, "alice", training)


def test_a_composition_of_a_private_task_is_its_owners(scene: Scene) -> None:
    scene.submit("ann.mine", owner="ann", private=True)
    scene.settle()
    with pytest.raises(UnknownTask):
        make(scene, "+ann.mine +digits", user="bob", viewer="bob")
    asked = make(scene, "+ann.mine +digits", user="ann", viewer="ann")
    with pytest.raises(UnknownRun):
        scene.coordinator.composition_run(RequestContext(user="bob"), "ann", asked.run_id)
    assert scene.coordinator.status(RequestContext(user="bob")).work == ()
    assert len(scene.coordinator.status(RequestContext(user="ann")).work) == 1  # type: ignore[arg-type]


def test_rows_of_a_task_that_withholds_its_samples_are_its_owners(scene: Scene) -> None:
    scene.trained("secret", share="none")
    terms = "+digits +secret"
    for making in (ATLAS, CompositionMethod(method="grid"), CompositionMethod(method="adamerging")):
        with pytest.raises(BadRecipe, match="secret withholds its samples"):
            make(scene, terms, making=making)
    assert make(scene, terms).state == "running"  # a merge learns nothing
    fit = made(scene, terms, making=fitted(scene), request_id="two")
    assert fit.state == "ready"
    work = scene.launcher.processes[-1].work
    assert isinstance(work, ComposeWork)
    assert [shard.task for shard in work.probes] == ["digits"]  # its probe is withheld too
    own = make(scene, terms, making=ATLAS, viewer="tester", request_id="three")
    assert own.run_id != fit.run_id


def collected(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr("cluster.coordinator.garbage.GRACE", -1.0)
        scene.coordinator.collect()
        scene.coordinator.tick()


def test_files_are_kept_as_long_as_somebody_needs_them(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs, making = scene.home.blobs(), fitted(scene)
    fit = making.fit
    assert fit is not None
    assert fit.held_out is not None
    make(scene, making=making)
    references = scene.coordinator.references(ADMIN).files
    assert references[fit.shots.digest] == "rows that a model is to be made from"
    collected(scene, monkeypatch)
    scene.settle()
    assert scene.coordinator.composition(ADMIN, "alice").target is not None
    collected(scene, monkeypatch)
    assert not blobs.exists(fit.shots.digest)  # nobody needs what was learned from
    references, held_out = scene.coordinator.references(ADMIN).files, fit.held_out.digest
    assert references[held_out] == "rows that judge a model's own task"
    assert blobs.exists(held_out)
    target = scene.coordinator.composition(ADMIN, "alice").target
    assert target is not None
    assert blobs.exists(target.head_blob)
    references = scene.coordinator.references(ADMIN).files
    assert references[target.head_blob] == "the head of a model's own task"
    scene.coordinator.compose(asks("a sum"), "alice", ["+digits"])
    collected(scene, monkeypatch)
    assert not blobs.exists(held_out)


def test_what_a_model_that_waits_to_be_evaluated_was_fitted_to_is_kept(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its user has another model by now."""
    made(scene, making=fitted(scene))
    target = scene.coordinator.composition(ADMIN, "alice").target
    assert target is not None
    assert target.held_out is not None
    scene.coordinator.evaluate(asks("evaluate"), "alice")
    scene.coordinator.compose(asks("a sum"), "alice", ["+digits"])
    collected(scene, monkeypatch)
    kept = [target.head_blob, target.held_out.digest]
    assert all(map(scene.home.blobs().exists, kept))
    scene.settle()
    collected(scene, monkeypatch)
    assert not any(map(scene.home.blobs().exists, kept))


def test_a_merged_vector_that_waits_to_be_evaluated_is_kept(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(scene, making=TIES)
    merged = scene.coordinator.composition(ADMIN, "alice").merged
    assert merged is not None
    scene.coordinator.evaluate(asks("evaluate"), "alice")
    scene.coordinator.compose(asks("a sum"), "alice", ["+digits"])
    collected(scene, monkeypatch)
    assert scene.home.blobs().exists(merged.blob)
    scene.settle()
    collected(scene, monkeypatch)
    assert not scene.home.blobs().exists(merged.blob)


def test_a_model_is_judged_on_what_was_held_out_of_what_it_was_fitted_to(scene: Scene) -> None:
    making = fitted(scene)
    assert making.fit is not None
    assert making.fit.held_out is not None
    made(scene, "+digits", making=making)

    def judged(request_id: str) -> list[TaskData]:
        run_id = scene.coordinator.evaluate(asks(request_id), "alice").run_id
        work = next(p.work for p in scene.launcher.processes if p.work.run_id == run_id)
        assert isinstance(work, EvaluateWork)
        return [*work.tasks]

    new, digits = judged("evaluate")
    assert (new.name, new.classes, new.individual) == ("fitted", ("yes", "no"), None)
    assert new.test == making.fit.held_out
    assert digits.name == "digits"
    assert [run.about for run in scene.status().work] == ["evaluating the model of alice"]
    scene.home.blobs().remove(new.test.digest)
    assert judged("evaluate again") == [digits]


@pytest.mark.parametrize("how", ["a sum", "another method", "cancelled"])
@pytest.mark.parametrize("was", ["failed", "cancelled"])
def test_what_failed_is_listed_and_kept_until_its_user_awaits_it_no_more(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, was: str, how: str
) -> None:
    call, blobs, making = scene.coordinator, scene.home.blobs(), fitted(scene)
    assert making.fit is not None
    shots = making.fit.shots.digest
    asked = make(scene, making=making)
    if was == "cancelled":
        call.cancel_compositions(asks("stop"), "alice")
        assert shots not in call.references(ADMIN).files
        make(scene, making=making, request_id="again")
    bobs = make(scene, user="bob", making=ATLAS, request_id="bobs")
    for process in scene.launcher.running():
        process.outcome = Raised("no")
        call.tick()
    both = {(asked.run_id, "failed"), (bobs.run_id, "failed")}
    assert listed(scene) == both
    collected(scene, monkeypatch)
    assert shots in call.references(ADMIN).files
    assert blobs.exists(shots)
    if how == "a sum":
        call.compose(asks("a sum"), "alice", ["+digits"])
    elif how == "another method":
        make(scene, request_id="other")
        scene.settle()
    else:
        assert call.cancel_compositions(asks("dismiss"), "alice").cancelled == ()
    for _ in "ab":
        assert listed(scene) == {(bobs.run_id, "failed")}
        assert shots not in scene.coordinator.references(ADMIN).files
        scene.restart()
    collected(scene, monkeypatch)
    assert not blobs.exists(shots)
    assert scene.coordinator.composition_run(ADMIN, "alice", asked.run_id).reason == "no"
    make(scene, making=fitted(scene), request_id="once more")
    assert shots in scene.coordinator.references(ADMIN).files
    assert listed(scene) == {(asked.run_id, "running"), (bobs.run_id, "failed")}


def listed(scene: Scene) -> set[tuple[str, str]]:
    work = scene.coordinator.status(ADMIN).work
    return {(run.run_id, run.state) for run in work}


def test_nobody_dismisses_what_they_do_not_see(scene: Scene) -> None:
    scene.submit("ann.mine", owner="ann", private=True)
    scene.settle()
    asked = make(scene, "+ann.mine +digits", user="ann", viewer="ann")
    scene.coordinator.cancel_compositions(asks("bobs", "bob"), "ann")
    scene.settle()
    assert (
        scene.coordinator.composition_run(RequestContext(user="ann"), "ann", asked.run_id).state
        == "ready"
    )
    assert scene.coordinator.composition(ADMIN, "ann").method == "ties"  # she awaited it


def test_a_merged_vector_goes_with_its_last_user_and_comes_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = made(scene)
    merged = scene.coordinator.composition(ADMIN, "alice").merged
    assert merged is not None
    collected(scene, monkeypatch)
    assert scene.coordinator.references(ADMIN).files[merged.blob] == "the merged vector of a model"
    scene.coordinator.compose(asks("a sum"), "alice", ["+digits"])
    collected(scene, monkeypatch)
    assert not scene.home.blobs().exists(merged.blob)
    again = make(scene, request_id="again")
    assert (again.run_id, again.state) == (first.run_id, "running")
    assert again.model is None
    scene.settle()
    assert scene.home.blobs().exists(merged.blob)
    assert scene.coordinator.composition(ADMIN, "alice").merged == merged


def test_a_purge_takes_what_was_merged_of_it(scene: Scene) -> None:
    made(scene)
    merged = scene.coordinator.composition(ADMIN, "alice").merged
    assert merged is not None
    scene.coordinator.compose(asks("a sum"), "alice", ["+digits"])  # nobody's model any more
    made(scene, "+shapes", user="bob", request_id="two")
    make(scene, "+digits", user="eve", request_id="three")
    facts = scene.coordinator.remove(asks("remove"), "digits", False)
    assert facts.users == ("alice",)
    assert scene.home.blobs().exists(merged.blob)
    scene.settle()
    assert scene.coordinator.composition(ADMIN, "eve").method == "ties"  # it works on
    eve = scene.coordinator.composition(ADMIN, "eve").merged
    withdrawn = make(scene, "+shapes", user="ann", making=ATLAS, request_id="four")
    scene.coordinator.remove(asks("purge"), "digits", True)
    scene.coordinator.tick()
    assert not scene.home.blobs().exists(merged.blob)
    assert eve is not None
    assert not scene.home.blobs().exists(eve.blob)
    with pytest.raises(Erased):
        scene.coordinator.composition(ADMIN, "eve")
    assert scene.coordinator.composition(ADMIN, "bob").merged is not None
    assert scene.coordinator.composition_run(ADMIN, "ann", withdrawn.run_id).state == "running"
    scene.coordinator.remove(asks("purge shapes"), "shapes", True)
    found = scene.coordinator.composition_run(ADMIN, "ann", withdrawn.run_id)
    assert (found.state, found.reason) == ("failed", "shapes was purged")
    assert scene.running() == []
