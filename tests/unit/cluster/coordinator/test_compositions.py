"""Compositions that are more than a sum, as the coordinator looks after them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.domain.base import BlobRef, RequestContext
from cluster.domain.compositions import Adapt, CompositionMethod, Fit, Report
from cluster.domain.outcomes import Finished, Raised
from cluster.domain.status import CompositionRun
from cluster.domain.work import Composed, ComposeWork, Progress
from cluster.storage.samples import store_rows
from tacl.errors import (
    BadConfig,
    BadName,
    BadRecipe,
    CorruptBlob,
    EmptySplit,
    Erased,
    MixedRegimes,
    RunFailed,
    TaclError,
    TooFewClasses,
    UnknownRun,
    UnknownTask,
)
from tests.support.fakes import ADMIN, Scene, asks, shard_blob

TIES, ATLAS = CompositionMethod(method="ties"), CompositionMethod(method="atlas")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path).trained("digits", "shapes")


def rows(scene: Scene, text: str = "shot") -> BlobRef:
    return store_rows(scene.home.blobs(), [f"{text} one", f"{text} two"], [0, 1])


def fitted(scene: Scene) -> CompositionMethod:
    fit = Fit(classes=("yes", "no"), shots=rows(scene), held_out=rows(scene, "held"))
    return CompositionMethod(method="atlas", fit=fit)


def make(
    scene: Scene,
    terms: str = "+digits +shapes",
    user: str = "alice",
    making: CompositionMethod = TIES,
    request_id: str = "one",
    viewer: str | None = None,
) -> CompositionRun:
    context = asks(request_id, viewer)
    return scene.coordinator.start_composition(context, user, terms.split(), making)


def made(scene: Scene, terms: str = "+digits +shapes", **changes: Any) -> CompositionRun:
    found = make(scene, terms, **changes)
    scene.settle()
    user = changes.get("user", "alice")
    return scene.coordinator.composition_run(ADMIN, user, found.run_id)


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
    assert found.report.accuracies["digits"]["after"] == 0.8
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
    assert scene.coordinator.retry(ADMIN, "digits").retried == ()  # it is nobody's but alice's
    assert make(scene, request_id="two").state == "running"
    scene.settle()
    assert scene.coordinator.composition(ADMIN, "alice").method == "ties"


def test_it_tells_how_far_it_is(scene: Scene) -> None:
    run_id = make(scene, making=ATLAS).run_id
    scene.coordinator.progressed(run_id, Progress(step=3, steps=9, loss=0.5), 1)
    found = scene.coordinator.composition_run(ADMIN, "alice", run_id)
    assert (found.step, found.steps, found.loss) == (3, 9, 0.5)
    for attempt in (2, 1):  # one that is not there yet, and one that is no more
        with pytest.raises(RunFailed, match="not the one that runs now"):
            scene.coordinator.progressed(run_id, Progress(step=4, steps=9, loss=0.4), attempt)
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
    ({"terms": "+nobody"}, UnknownTask, "there is digits, shapes"),
    ({"terms": "*"}, BadRecipe, "term"),
    ({"terms": "-digits", "making": ATLAS}, BadRecipe, "this recipe adds none"),
    ({"making": CompositionMethod(method="ties", select="blockwise:1")}, BadConfig, "atlas"),
    ({"making": CompositionMethod(method="sum")}, BadConfig, "at once"),
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
    real = registry.vector

    def ordinary(task: str, version: int) -> object:
        return real(task, version).model_copy(update={"regime": "ordinary"})

    registry.vector = ordinary  # type: ignore[method-assign]
    with pytest.raises(MixedRegimes, match="digits@v1, shapes@v1: ordinary.*tacl import"):
        make(scene)


def told_again(scene: Scene, user: str = "alice") -> str:
    """How to make the user's model again, as the refusal to update it says."""
    with pytest.raises(BadRecipe) as refused:
        scene.coordinator.update_composition(asks(f"update {user}"), user)
    return str(refused.value).partition("make it again: ")[2]


def adapting(scene: Scene, *classes: str) -> CompositionMethod:
    adapt = Adapt(inputs=shard_blob(scene.home, "new"), classes=classes)
    return CompositionMethod(method="atlas", adapt=adapt)


SAME = " (DATA: the same rows again, with the columns and --classes that you named)"


def test_a_made_model_is_not_updated_and_how_to_make_it_again_is_said(scene: Scene) -> None:
    select = CompositionMethod(method="atlas", select="blockwise:1")
    for i, (terms, making, expected) in enumerate(
        (
            ("+digits@v1 -0.5*shapes", TIES, "+digits -0.5*shapes --method ties"),
            ("-shapes digits", ATLAS, "+digits -shapes --method atlas"),
            ("digits", select, "+digits --method atlas --select blockwise:1"),
            ("digits", fitted(scene), "+digits --method atlas --fit DATA --shots 1" + SAME),
            ("digits", adapting(scene), "+digits --method atlas --adapt DATA" + SAME),
            (
                "digits",
                adapting(scene, "ham", "no spam"),
                "+digits --method atlas --adapt DATA --classes 'ham,no spam'" + SAME,
            ),
        )
    ):
        user = f"user{i}"
        made(scene, terms, making=making, user=user, request_id=user)
        assert told_again(scene, user) == f"tacl compose {user} {expected}"
    scene.coordinator.refresh(asks("refresh"), "digits")
    scene.settle()
    listed = scene.coordinator.users(ADMIN)
    assert [one.again for one in listed] == [told_again(scene, one.user) for one in listed]


def scaled(scene: Scene, terms: str, factor: float, user: str = "alice") -> None:
    """A grid that found this factor."""
    make(
        scene,
        terms,
        user=user,
        making=CompositionMethod(method="grid"),
        request_id=f"{user} {terms}",
    )
    work = scene.process("compose").work
    assert isinstance(work, ComposeWork)
    times = [t.model_copy(update={"coefficient": t.coefficient * factor}) for t in work.terms]
    report = Report(accuracies={}, judged_on="nothing", seconds=0.1)
    scene.end(Finished(Composed(terms=tuple(times), report=report)), "compose")


def test_what_a_grid_found_is_not_what_it_is_made_from_again(scene: Scene) -> None:
    scaled(scene, "+digits -2*shapes", 0.0)
    assert told_again(scene) == "tacl compose alice +digits -2.0*shapes --method grid"


def test_users_whose_models_are_the_same_are_told_their_own_words(scene: Scene) -> None:
    scaled(scene, "+digits", 0.5)
    scaled(scene, "+0.5*digits", 1.0, "bob")
    models = [scene.coordinator.composition(ADMIN, user) for user in ("alice", "bob")]
    assert models[0].digest == models[1].digest
    assert told_again(scene) == "tacl compose alice +digits --method grid"
    assert told_again(scene, "bob") == "tacl compose bob +0.5*digits --method grid"


def test_two_versions_of_a_task_are_made_again_as_they_are(scene: Scene) -> None:
    scene.coordinator.refresh(asks("refresh"), "digits")
    scene.settle()
    made(scene, "+digits@v2 -digits@v1 shapes")
    terms = ["+digits@v2", "-digits@v1", "+shapes"]
    assert sorted(told_again(scene).split()[3:6]) == sorted(terms)


def test_a_model_whose_result_is_gone_can_still_be_told_of(scene: Scene) -> None:
    made(scene)
    merged = scene.coordinator.composition(ADMIN, "alice").merged
    assert merged is not None
    scene.home.blobs().remove(merged.blob)
    assert make(scene, request_id="two").state == "running"
    assert told_again(scene) == "tacl compose alice TERM ... --method ties"


# -- who sees it, and what is kept


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


def test_files_are_kept_as_long_as_somebody_needs_them(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs, making = scene.home.blobs(), fitted(scene)
    fit = making.fit
    assert fit is not None
    assert fit.held_out is not None
    make(scene, making=making)
    references = scene.coordinator.references(ADMIN)
    assert references[fit.shots.digest] == "rows that a model is to be made from"
    collected(scene, monkeypatch)
    scene.settle()
    assert scene.coordinator.composition(ADMIN, "alice").target is not None
    collected(scene, monkeypatch)
    assert not blobs.exists(fit.shots.digest)  # nobody needs what was learned from
    assert not blobs.exists(fit.held_out.digest)
    target = scene.coordinator.composition(ADMIN, "alice").target
    assert target is not None
    assert blobs.exists(target.head_blob)
    assert scene.coordinator.references(ADMIN)[target.head_blob] == "the head of a model's own task"


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
        assert shots not in call.references(ADMIN)
        make(scene, making=making, request_id="again")
    bobs = make(scene, user="bob", making=ATLAS, request_id="bobs")
    for process in scene.launcher.running():
        process.outcome = Raised("no")
        call.tick()
    both = {(asked.run_id, "failed"), (bobs.run_id, "failed")}
    assert listed(scene) == both
    collected(scene, monkeypatch)
    assert shots in call.references(ADMIN)
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
        assert shots not in scene.coordinator.references(ADMIN)
        scene.restart()
    collected(scene, monkeypatch)
    assert not blobs.exists(shots)
    assert scene.coordinator.composition_run(ADMIN, "alice", asked.run_id).reason == "no"
    make(scene, making=fitted(scene), request_id="once more")
    assert shots in scene.coordinator.references(ADMIN)
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
    assert scene.coordinator.references(ADMIN)[merged.blob] == "the merged vector of a model"
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
