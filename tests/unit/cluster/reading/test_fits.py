"""Which fits are forgotten: none that a model answers with."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.coordinator.outdated import Outdated
from cluster.domain.compositions import Composition, Fitted, FittedHead, Merged, RecipeTerm
from cluster.domain.tasks import VectorRef
from cluster.domain.work import FitWork
from cluster.reading.fits import (
    HeadFit,
    added_vectors,
    added_vectors_of,
    answering,
    fits_in_use,
    fits_shown,
    warm_start,
)
from cluster.registry import Recipe
from cluster.registry.compositions import ModelTable
from cluster.scheduler.state import Node
from tests.support.fakes import ADMIN, Scene, asks

OWNERS = {"c": "ann", "d": "bob"}
VECTORS = st.tuples(st.sampled_from("abcd"), st.sampled_from("12")).map("".join)
CHAMPIONS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12")).map(
    lambda versions: {task: task + version for task, version in versions.items()}
)


def fit(number: int, vectors: dict[str, str]) -> HeadFit:
    def head(vector: str) -> FittedHead:
        blobs = {"head": f"{vector} {number}", "frozen": "frozen"}
        return FittedHead(task=vector[0], vector=vector, **blobs, accuracy=0.9, frozen_accuracy=0.8)

    heads = tuple(head(vector) for vector in vectors.values())
    return HeadFit.of(str(number), Fitted(heads=heads, metrics={}), OWNERS)


def models_of(recipes: list[set[str]]) -> list[list[tuple[str, str]]]:
    return [[(vector[0], vector) for vector in sorted(recipe)] for recipe in recipes]


@given(st.lists(CHAMPIONS, max_size=8), st.sampled_from(["", "ann"]), CHAMPIONS)
def test_a_fit_goes_on_from_the_one_that_has_most_of_it_and_saw_nothing_else(
    sets: list[dict[str, str]], owner: str, champions: dict[str, str]
) -> None:
    """Neither a task that is gone nor one that another owner keeps private taught its heads."""
    fits = [replace(fit(number, vectors), novelty="n") for number, vectors in enumerate(sets)]
    may = [
        (sum(champions[task] == head.vector for task, head in one.heads.items()), number)
        for number, one in enumerate(fits)
        if one.heads.keys() <= champions.keys()
        and all(OWNERS.get(task, owner) == owner for task in one.heads)
    ]
    found = warm_start(fits, owner, champions)
    assert (found and found.run_id) == (str(max(may)[1]) if may else None)
    assert warm_start([replace(one, novelty=None) for one in fits], owner, champions) is None


@given(st.lists(CHAMPIONS, max_size=8), st.lists(st.sets(VECTORS), max_size=8))
def test_every_model_answers_with_the_same_fit(
    sets: list[dict[str, str]], recipes: list[set[str]]
) -> None:
    fits = [fit(number, vectors) for number, vectors in enumerate(sets)]
    models = models_of(recipes)
    needed = fits_in_use(fits, models, OWNERS)
    left = [one for one in fits if one.run_id in needed]
    for model in models:
        assert answering(left, model, OWNERS) == answering(fits, model, OWNERS)


COEFFICIENTS = st.tuples(st.sampled_from([1.0, -0.5, 0.0]), st.sampled_from([None, {"a": 1.0}]))


@given(st.lists(COEFFICIENTS, max_size=3), st.sampled_from([None, Merged(digest="m", blob="b")]))
def test_what_a_recipe_adds_is_read_of_its_text_too(
    coefficients: list[tuple[float, dict[str, float] | None]], merged: Merged | None
) -> None:
    def vector(n: int) -> VectorRef:
        files = {"blob": "blob", "head_blob": "head"}
        known = {"task": f"task{n}", "version": 1, "digest": f"vector {n}", "run_id": "run"}
        return VectorRef.model_validate(known | files)

    terms = tuple(
        RecipeTerm(coefficient=coefficient, by_block=by_block, vector=vector(n))
        for n, (coefficient, by_block) in enumerate(coefficients)
    )
    model = Composition(digest="d", user="ann", terms=terms, merged=merged)
    text = f"[{','.join(term.model_dump_json() for term in terms)}]"
    recipe = Recipe("d", text, merged and merged.model_dump_json())
    assert added_vectors_of(recipe) == added_vectors(model)


@given(st.lists(CHAMPIONS, max_size=8), CHAMPIONS)
def test_everybody_is_told_the_same_of_champions(
    sets: list[dict[str, str]], champions: dict[str, str]
) -> None:
    fits = [fit(number, vectors) for number, vectors in enumerate(sets)]
    left = [one for one in fits if one.run_id in fits_shown(fits, champions)]
    for viewer in ({"ann"}, {"bob"}, set[str](), {"ann", "bob"}):
        for champion in champions.items():
            last = [
                next(
                    (one for one in some[::-1] if champion in one.vectors and one.taught <= viewer),
                    0,
                )
                for some in (fits, left)
            ]
            assert last[0] == last[1]


def test_garbage_are_fits_that_nobody_answers_with(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Node(4))
    for name in ("a", "b", "c", "d"):
        scene.trained(name, heads="fitted")
        if name == "b":
            scene.coordinator.compose(asks("ann", "ann"), "ann", ["+a", "+b"])
    before = scene.coordinator.composition(ADMIN, "ann")

    def kept() -> list[int]:
        return [len(result.heads) for _, result in scene.coordinator._registry.fits()]

    assert kept() == [1, 2, 3, 4]
    scene.coordinator.collect(dry_run=True)
    assert kept() == [1, 2, 3, 4]
    for _ in range(2):
        scene.coordinator.collect()
        assert kept() == [2, 4]
        assert scene.coordinator.composition(ADMIN, "ann") == before
        scene.settle()
        scene.restart()
    scene.coordinator.remove(asks("remove"), "d", False)
    scene.settle()
    assert kept() == [2, 4, 3], "it was made again"


def test_what_is_composed_while_garbage_is_looked_for_keeps_its_heads(tmp_path: Path) -> None:
    """The models of many are read without the lock; who composes meanwhile is told of heads."""
    scene = Scene(tmp_path, Node(4))
    scene.trained("a", heads="fitted")
    scene.trained("b", heads="fitted")
    coordinator = scene.coordinator
    outdated = Outdated(coordinator._execution.heads.fits, coordinator._state)
    outdated.update(coordinator._registry)
    before = coordinator.compose(asks("ann", "ann"), "ann", ["+a"])
    assert len(outdated.deletable(coordinator._state, coordinator._execution.heads.fits)) == 1
    coordinator._forget_fits(outdated)
    assert coordinator.composition(ADMIN, "ann") == before
    assert [len(one.heads) for _, one in coordinator._registry.fits()] == [1, 2]


def test_no_fit_is_garbage_while_another_may_go_on_from_it(tmp_path: Path) -> None:
    """Its heads are named by the list of a fit alone, which names no files of its own."""
    scene = Scene(tmp_path, Node(4))
    scene.trained("a", heads="fitted")
    scene.trained("b", heads="fitted")
    scene.arrive("c", heads="fitted")
    while not any(isinstance(one, FitWork) for one in scene.running()):
        scene.finish_process(scene.launcher.running()[0])
    scene.coordinator.collect()
    assert len(scene.coordinator._registry.fits()) == 2
    scene.settle()
    scene.coordinator.collect()
    assert [len(one.heads) for _, one in scene.coordinator._registry.fits()] == [3]


def test_the_models_of_everybody_are_read_without_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, Node(4))
    scene.trained("a", heads="fitted")
    scene.trained("b", heads="fitted")
    scene.coordinator.compose(asks("ann", "ann"), "ann", ["+a"])
    read, lock = list[bool](), scene.coordinator._lock._lock
    real = ModelTable.recipes_after

    def recipes_after(registry: ModelTable, digest: str) -> list[Recipe]:
        read.append(lock._is_owned())  # type: ignore[attr-defined]
        return real(registry, digest)

    monkeypatch.setattr(ModelTable, "recipes_after", recipes_after)
    scene.coordinator.collect()
    assert read
    assert not any(read)


def test_what_is_kept_of_a_task_in_a_fit_is_little() -> None:
    """Thousands of tasks are in each of several fits: bytes of one, with its four texts."""
    names = [f"{number:064}" for number in range(100)]
    heads = [
        {"task": n, "vector": n, "head": n, "frozen": n, "accuracy": 0.9, "frozen_accuracy": 0.8}
        for n in names
    ]
    text = json.dumps({"heads": heads, "novelty": None, "metrics": {}})
    Fitted.model_validate_json(text)  # once for what it makes for all
    tracemalloc.start()
    kept = HeadFit.of("fit", Fitted.model_validate_json(text), {})
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept.heads.keys() == {*names}
    assert used < 1000 * len(names)
