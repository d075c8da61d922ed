"""Which fits are forgotten: none that a model answers with."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.compositions import FittedHead
from cluster.reading.fits import Fit, answering, asked, told
from cluster.scheduler.state import Node
from tests.support.fakes import ADMIN, Scene, asks

OWNERS = {"c": "ann", "d": "bob"}
VECTORS = st.tuples(st.sampled_from("abcd"), st.sampled_from("12")).map("".join)


def fit(number: int, vectors: set[str]) -> Fit:
    def head(vector: str) -> FittedHead:
        blobs = {"head": f"{vector} {number}", "frozen": "frozen"}
        return FittedHead(task=vector[0], vector=vector, **blobs, accuracy=0.9, frozen_accuracy=0.8)

    tasks = frozenset(vector[0] for vector in vectors)
    taught = frozenset(OWNERS[task] for task in tasks if task in OWNERS)
    return Fit(str(number), tasks, taught, {one: head(one) for one in vectors}, None)


def models_of(recipes: list[set[str]]) -> list[list[tuple[str, str]]]:
    return [[(vector[0], vector) for vector in sorted(recipe)] for recipe in recipes]


@given(st.lists(st.sets(VECTORS), max_size=8), st.lists(st.sets(VECTORS), max_size=8))
def test_every_model_answers_with_the_same_fit(
    sets: list[set[str]], recipes: list[set[str]]
) -> None:
    fits = [fit(number, vectors) for number, vectors in enumerate(sets)]
    models = models_of(recipes)
    needed = asked(fits, models, OWNERS)
    left = [one for one in fits if one.run_id in needed]
    for model in models:
        assert answering(left, model, OWNERS) == answering(fits, model, OWNERS)


@given(st.lists(st.sets(VECTORS), max_size=8), st.sets(VECTORS))
def test_everybody_is_told_the_same_of_champions(sets: list[set[str]], champions: set[str]) -> None:
    fits = [fit(number, vectors) for number, vectors in enumerate(sets)]
    left = [one for one in fits if one.run_id in told(fits, champions)]
    for viewer in ({"ann"}, {"bob"}, set[str](), {"ann", "bob"}):
        for champion in champions:
            last = [
                next(
                    (one for one in some[::-1] if champion in one.heads and one.taught <= viewer), 0
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
