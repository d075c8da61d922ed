"""Heads of what is new beside heads that stay: near the fit of all, for a cost that stays too."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tacl.heads import block
from tacl.heads.block import near_count, rows_beside, taken_for
from tacl.heads.fitting import (
    KeptHeads,
    LabelledFeatures,
    answering_heads,
    fitted_heads,
    frozen_heads,
)
from tacl.heads.head import Head, union

D, CLASSES = 8, 3
TASKS = ("a", "b", "c")
MEANS = {
    task: 2 * torch.randn(CLASSES, D, generator=torch.Generator().manual_seed(seed))
    for seed, task in enumerate(TASKS)
}


def rows(task: str, count: int, seed: int) -> LabelledFeatures:
    random = torch.Generator().manual_seed(1000 * seed + ord(task))
    labels_N = torch.arange(count) % CLASSES
    return LabelledFeatures(
        MEANS[task][labels_N] + torch.randn(count, D, generator=random), labels_N
    )


def untrained(*tasks: str) -> dict[str, Head]:
    names = {task: tuple(f"{task}{c}" for c in range(CLASSES)) for task in tasks}
    return {task: Head(torch.zeros(CLASSES, D), 8.0, classes) for task, classes in names.items()}


TRAIN, VALIDATION, TEST = (
    {task: rows(task, count, seed) for task in TASKS}
    for seed, count in ((1, 150), (2, 60), (3, 600))
)


def surprise(heads: dict[str, Head], test: dict[str, LabelledFeatures] = TEST) -> float:
    """Mean cross-entropy over the columns of all, in nats."""
    joint, labels = union([heads[task] for task in TASKS]), list[Tensor]()
    for place, task in enumerate(TASKS):
        labels.append(test[task].labels_N + place * CLASSES)
    logits_NC = joint.logits(torch.cat([test[task].features_ND for task in TASKS]))
    return cross_entropy(logits_NC, torch.cat(labels)).item()


def of(found: dict[str, LabelledFeatures], *tasks: str) -> dict[str, LabelledFeatures]:
    return {task: found[task] for task in tasks}


def test_a_task_that_arrives_is_fitted_nearly_as_well_as_all_together() -> None:
    together = fitted_heads(untrained(*TASKS), TRAIN, VALIDATION)
    before = fitted_heads(untrained("a", "b"), of(TRAIN, "a", "b"), of(VALIDATION, "a", "b"))
    new = fitted_heads(untrained("c"), TRAIN, VALIDATION, before)
    alone = fitted_heads(untrained("c"), of(TRAIN, "c"), of(VALIDATION, "c"))
    assert new.keys() == {"c"}
    assert surprise({**before, **new}) < surprise(together) + 0.1
    assert surprise({**before, **alone}) > surprise({**before, **new}) + 0.3


def test_columns_that_stay_count_without_rows_of_theirs() -> None:
    """A new task leaves them their place: its own rows are not all that there is."""
    before = fitted_heads(untrained("a", "b"), of(TRAIN, "a", "b"), of(VALIDATION, "a", "b"))
    new = fitted_heads(untrained("c"), of(TRAIN, "c"), of(VALIDATION, "c"), before)
    alone = fitted_heads(untrained("c"), of(TRAIN, "c"), of(VALIDATION, "c"))
    assert surprise({**before, **new}) < surprise({**before, **alone})


def test_what_tells_none_of_these_is_of_all_tasks_and_a_fit_finds_the_new_ones() -> None:
    generic = (torch.randn(60, D), torch.randn(30, D))
    some = of(TRAIN, "a", "b"), of(VALIDATION, "a", "b")
    before, _ = frozen_heads(untrained("a", "b"), *some, generic)
    kept = KeptHeads({}, before, {"a": 20})  # no row of b takes part
    found, novelty = frozen_heads(untrained("c"), TRAIN, VALIDATION, generic, kept)
    assert found.keys() == {"c"}
    assert novelty.sizes.keys() == {"", *TASKS}
    both = (TEST[task].features_ND for task in ("a", "b"))
    own, others = novelty.belonging(TEST["c"].features_ND, ["c"]), torch.cat([*both])
    assert own.mean() > novelty.belonging(others, ["c"]).mean() + 0.3


def test_answering_heads_stand_beside_those_that_stay() -> None:
    def pairs(found: dict[str, LabelledFeatures]) -> dict:
        return {task: (own, own) for task, own in found.items()}

    frozen = untrained(*TASKS)
    some = [pairs(of(part, "a", "b")) for part in (TRAIN, VALIDATION)]
    before = answering_heads(untrained("a", "b"), frozen, some[0], some[1])
    kept = KeptHeads(before, frozen, {"a": 150, "b": 150})
    new = answering_heads(untrained("c"), frozen, pairs(TRAIN), pairs(VALIDATION), kept)
    assert new.keys() == {"c"}
    narrow = {task: head.narrow() for task, head in {**before, **new}.items()}
    own = [pairs(of(part, "c")) for part in (TRAIN, VALIDATION)]
    alone = answering_heads(untrained("c"), frozen, own[0], own[1])
    assert surprise(narrow) < surprise({**narrow, "c": alone["c"].narrow()}) - 0.2


def test_a_row_is_taken_for_the_likeliest_tasks() -> None:
    heads = fitted_heads(untrained("a", "b"), of(TRAIN, "a", "b"), of(VALIDATION, "a", "b"))
    for task in ("a", "b"):
        assert taken_for(TEST[task].features_ND, heads, 1) == [task]
    assert sorted(taken_for(TEST["c"].features_ND, heads, 5)) == ["a", "b"]


def test_a_block_holds_what_is_new_and_some_that_were_there() -> None:
    assert near_count(1) == block.BLOCK - 1
    assert near_count(100) == block.NEAR


def test_rows_beside_are_as_many_however_many_tasks_stay() -> None:
    few = rows_beside([f"t{n}" for n in range(32)], ["new"])
    assert set(few.values()) == {block.ROWS // 32}
    assert len(few) == 32
    stay = [f"t{n}" for n in range(5000)]
    many = rows_beside(stay, ["new"])
    assert sum(many.values()) <= block.ROWS
    assert set(many.values()) == {block.LEAST}
    assert many == rows_beside(stay[::-1], ["new"])
    assert many.keys() != rows_beside(stay, ["newer"]).keys()
    assert rows_beside([], ["new"]) == {}
