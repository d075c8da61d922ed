"""What is told of a composition that could be made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.domain.compositions import Adapt, CompositionMethod, Report
from cluster.domain.outcomes import Finished
from cluster.domain.work import Composed, ComposeWork
from tacl.errors import BadRecipe, Erased
from tests.support.composing import ATLAS, TIES, fitted, made, make
from tests.support.fakes import ADMIN, Scene, asks, shard_blob


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path).trained("digits", "shapes")


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


def test_a_model_that_a_purge_killed_says_who_did_it_and_how_it_is_made_without(
    scene: Scene,
) -> None:
    made(scene, "+digits -0.5*shapes", making=TIES, user="alice", request_id="ties")
    scene.coordinator.compose(asks("bob"), "bob", ["+shapes"])
    scene.coordinator.remove(asks("away", "ann"), "shapes", False)
    scene.coordinator.remove(asks("purge"), "shapes", True)
    alice, bob = scene.coordinator.users(ADMIN)
    assert [(e.task, e.kind, e.text) for e in alice.purged] == [("shapes", "purged", "by an admin")]
    assert alice.again == "tacl compose alice +digits --method ties"
    assert bob.again == "tacl compose bob TERM ..."
    with pytest.raises(Erased, match=r"Compose again without: tacl compose bob TERM \.\.\."):
        scene.coordinator.composition(ADMIN, "bob")


def test_a_model_that_a_purge_killed_is_not_made_again_with_what_was_removed_either(
    scene: Scene,
) -> None:
    scene.trained("faces")
    scene.coordinator.compose(asks("one"), "alice", ["+digits", "+shapes", "+faces"])
    scene.coordinator.remove(asks("away"), "shapes", False)
    scene.coordinator.remove(asks("purge"), "faces", True)
    with pytest.raises(Erased) as refused:
        scene.coordinator.composition(ADMIN, "alice")
    command = str(refused.value).partition("Compose again without: ")[2]
    assert command == "tacl compose alice +digits"
    assert scene.coordinator.users(ADMIN)[0].again == command
    assert scene.coordinator.compose(asks("again"), "alice", ["+digits"])


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


def test_a_sum_of_two_versions_of_a_task_keeps_them_and_is_not_outdated(scene: Scene) -> None:
    call = scene.coordinator
    call.refresh(asks("two versions"), "digits")
    scene.settle()
    model = call.compose(asks("sum"), "alice", ["+0.5*digits@v1", "+0.5*digits@v2", "+shapes"])
    for task in ("digits", "shapes"):
        call.refresh(asks(f"refresh {task}"), task)
    scene.settle()
    (told,) = call.users(ADMIN)
    assert (told.outdated, told.again) == (("shapes",), "tacl compose alice --update")
    updated = call.update_composition(asks("update"), "alice")
    assert updated.terms[:2] == model.terms[:2]
    assert updated.terms[2].vector.version == 2
    assert call.users(ADMIN)[0].outdated == ()


def test_a_model_whose_result_is_gone_can_still_be_told_of(scene: Scene) -> None:
    made(scene)
    merged = scene.coordinator.composition(ADMIN, "alice").merged
    assert merged is not None
    scene.home.blobs().remove(merged.blob)
    assert make(scene, request_id="two").state == "running"
    assert told_again(scene) == "tacl compose alice TERM ... --method ties"
