"""One softmax over several tasks: which sums rows are seen under, and what the fit gives."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from tacl.backbone.inner import BLOCKS
from tacl.heads.fitting import (
    DRAWS,
    LabelledFeatures,
    _beside_inner,
    _half,
    _half_each,
    answering_heads,
    drawn_sums,
    fitted_heads,
    frozen_heads,
    views,
)
from tacl.heads.head import Head, beside, union

DIMENSION = 6
RANDOM = torch.Generator().manual_seed(0)
MEANS = {
    task: 2 * torch.randn(classes, DIMENSION, generator=RANDOM)
    for task, classes in (("a", 2), ("b", 3))
}


def rows(task: str, count: int) -> LabelledFeatures:
    labels_N = torch.arange(count) % len(MEANS[task])
    noise_ND = torch.randn(count, DIMENSION, generator=RANDOM)
    return LabelledFeatures(MEANS[task][labels_N] + noise_ND, labels_N)


def untrained() -> dict[str, Head]:
    """Heads that know nothing."""
    return {
        task: Head(
            torch.zeros(len(means), DIMENSION), 8.0, tuple(f"{task}{c}" for c in range(len(means)))
        )
        for task, means in MEANS.items()
    }


def pooled(heads: dict[str, Head], found: dict[str, LabelledFeatures]) -> tuple[Tensor, Tensor]:
    """Logits over all columns, and the numbers of the right ones."""
    joint, start, labels = union(list(heads.values())), 0, []
    for task, head in heads.items():
        labels.append(found[task].labels_N + start)
        start += len(head.classes)
    return joint.logits(torch.cat([found[t].features_ND for t in heads])), torch.cat(labels)


def test_every_second_sum_is_of_all_and_the_order_of_tasks_means_nothing() -> None:
    drawn = drawn_sums(["c", "a", "b", "d"])
    assert len(drawn) == DRAWS
    assert all(one == {"a", "b", "c", "d"} for one in drawn[::2])
    assert len({len(one) for one in drawn[1::2]}) > 1
    assert drawn == drawn_sums(["d", "c", "b", "a"])
    assert drawn != drawn_sums(["d", "c", "b", "e"])


@pytest.fixture(scope="module")
def fitted() -> tuple[dict[str, Head], dict[str, LabelledFeatures]]:
    train = {task: rows(task, 300) for task in MEANS}
    validation = {task: rows(task, 100) for task in MEANS}
    return fitted_heads(untrained(), train, validation), validation


def test_the_task_is_told_too(fitted: tuple[dict[str, Head], dict[str, LabelledFeatures]]) -> None:
    heads, validation = fitted
    assert {task: head.classes for task, head in heads.items()} == {
        task: head.classes for task, head in untrained().items()
    }
    logits_NC, labels_N = pooled(heads, validation)
    assert (logits_NC.argmax(-1) == labels_N).double().mean() > 0.8


def test_the_temperature_is_about_the_best(
    fitted: tuple[dict[str, Head], dict[str, LabelledFeatures]],
) -> None:
    logits_NC, labels_N = pooled(*fitted)
    least = cross_entropy(logits_NC, labels_N)
    assert least < cross_entropy(0.8 * logits_NC, labels_N)
    assert least < cross_entropy(1.25 * logits_NC, labels_N)


def test_few_validation_rows_that_are_all_right_make_nobody_sure() -> None:
    """Rows of three classes that overlap; the loss on many others is no worse than by chance."""
    for seed in range(8):
        random = torch.Generator().manual_seed(seed)
        means_CD = 0.8 * torch.randn(3, 32, generator=random)

        def drawn(count: int, means_CD: Tensor = means_CD, random=random) -> LabelledFeatures:
            labels_N = torch.arange(count) % 3
            noise_ND = 2 * torch.randn(count, 32, generator=random)
            return LabelledFeatures(means_CD[labels_N] + noise_ND, labels_N)

        start = Head(torch.zeros(3, 32), 8.0, ("x", "y", "z"))
        head = fitted_heads({"a": start}, {"a": drawn(40)}, {"a": drawn(6)})["a"]
        test = drawn(1000)
        assert cross_entropy(head.logits(test.features_ND), test.labels_N) < math.log(3)


def test_few_rows_are_helped_by_a_head_that_knows() -> None:
    """A class without rows keeps its name."""
    knows = {
        task: Head(means / means.norm(dim=-1, keepdim=True), 8.0, untrained()[task].classes)
        for task, means in MEANS.items()
    }
    found = {"a": rows("a", 4), "b": rows("b", 200)}
    without = found["b"].labels_N != 2
    train = found | {
        "b": LabelledFeatures(found["b"].features_ND[without], found["b"].labels_N[without])
    }
    validation, test = ({task: rows(task, 60) for task in MEANS} for _ in range(2))

    def right(start: dict[str, Head]) -> float:
        logits_NC, labels_N = pooled(fitted_heads(start, train, validation), test)
        return (logits_NC.argmax(-1) == labels_N).double().mean().item()

    assert right(knows) > right(untrained()) + 0.1


def pairs(count: int, noise: float) -> dict[str, tuple[LabelledFeatures, LabelledFeatures]]:
    """At theta0 a task's rows are told apart, but not its classes; under sums the other way."""
    found = {}
    for task in MEANS:
        moved = rows(task, count)
        own = torch.zeros(DIMENSION).index_fill_(0, torch.tensor([len(MEANS[task])]), 3.0)
        plain_ND = own + noise * torch.randn(count, DIMENSION, generator=RANDOM)
        found[task] = (LabelledFeatures(plain_ND, moved.labels_N), moved)
    return found


def test_heads_see_a_row_before_and_after_its_vectors() -> None:
    train, validation, test = pairs(300, 0.3), pairs(100, 0.3), pairs(200, 0.3)
    frozen = fitted_heads(untrained(), at_theta0(train), at_theta0(validation))
    heads = answering_heads(untrained(), frozen, train, validation)
    narrow = {task: head.narrow() for task, head in heads.items()}
    moved = {task: pair[1] for task, pair in test.items()}

    def right(found: dict[str, Head], seen: dict[str, LabelledFeatures]) -> float:
        logits_NC, labels_N = pooled(found, seen)
        return (logits_NC.argmax(-1) == labels_N).double().mean().item()

    assert right(heads, views(test)) > right(narrow, moved) + 0.02
    learned, judged = ({t: pair[1] for t, pair in part.items()} for part in (train, validation))
    prior = {task: _half(head, frozen[task]) for task, head in untrained().items()}
    again = fitted_heads(prior, learned, judged)
    for task, head in again.items():
        torch.testing.assert_close(
            narrow[task].logits(moved[task].features_ND), head.logits(moved[task].features_ND)
        )


def test_what_many_rows_taught_at_theta0_helps_few_rows_under_sums() -> None:
    """In the mean over draws, by the surprise of other rows."""

    def helps() -> float:
        many, few, validation, test = (pairs(count, 2.0) for count in (600, 6, 200, 300))
        knows = fitted_heads(untrained(), at_theta0(many), at_theta0(validation))
        found = (
            answering_heads(untrained(), frozen, few, validation) for frozen in (untrained(), knows)
        )
        without, with_them = (cross_entropy(*pooled(heads, views(test))).item() for heads in found)
        return without - with_them

    assert sum(helps() for _ in range(8)) > 0


def at_theta0(
    found: dict[str, tuple[LabelledFeatures, LabelledFeatures]],
) -> dict[str, LabelledFeatures]:
    return {task: plain for task, (plain, _) in found.items()}


@pytest.mark.parametrize("inner", [0, 4])
def test_the_priors_give_the_mean_of_the_logits_of_both(inner: int) -> None:
    """`frozen` reads f and what inner blocks give, each as long as f; of which the moved features
    have f alone."""
    names = ("a", "b", "c")
    trained = Head(torch.randn(3, DIMENSION, generator=RANDOM), 4.0, names)
    frozen = Head(torch.randn(3, DIMENSION + inner, generator=RANDOM), 9.0, names)
    plain_ND, moved_ND = torch.randn(2, 5, DIMENSION, generator=RANDOM)
    blocks_NBK = normalize(torch.randn(5, BLOCKS, inner // BLOCKS, generator=RANDOM), dim=-1)
    inner_NK = plain_ND.norm(dim=-1, keepdim=True) * blocks_NBK.flatten(1)
    plain_NE = torch.cat([plain_ND, inner_NK], -1)
    wide_NC = (trained.logits(moved_ND) + frozen.logits(plain_NE)) / 2
    views_NV = beside(plain_NE, moved_ND)
    torch.testing.assert_close(_half_each(trained, frozen).logits(views_NV), wide_NC)
    seen = math.sqrt(1 + BLOCKS) if inner else 1.0
    of_f = Head(frozen.weight_CD[:, :DIMENSION] / seen, 9.0, names)
    narrow_NC = (trained.logits(moved_ND) + of_f.logits(moved_ND)) / 2
    torch.testing.assert_close(_half(trained, frozen).logits(moved_ND), narrow_NC)


def test_a_head_of_f_gives_the_same_logits_beside_inner_blocks() -> None:
    head = untrained()["a"]
    head = Head(torch.randn(2, DIMENSION, generator=RANDOM), head.scale, head.classes)
    plain_ND = torch.randn(5, DIMENSION, generator=RANDOM)
    inner_NK = plain_ND.norm(dim=-1, keepdim=True) * torch.eye(5).repeat(1, BLOCKS)
    found_NC = _beside_inner(head, DIMENSION + 5 * BLOCKS).logits(
        torch.cat([plain_ND, inner_NK], -1)
    )
    torch.testing.assert_close(found_NC, head.logits(plain_ND))
    assert _beside_inner(head, DIMENSION) is head


def test_heads_learn_what_only_inner_blocks_know() -> None:
    """f tells the task alone; the class lies beside it."""

    def wide(count: int) -> dict[str, LabelledFeatures]:
        found = {}
        for task, (plain, moved) in pairs(count, 0.3).items():
            of_class_ND = normalize(moved.features_ND, dim=-1)
            length_N1 = plain.features_ND.norm(dim=-1, keepdim=True)
            plain_NE = torch.cat([plain.features_ND, *[length_N1 * of_class_ND] * BLOCKS], -1)
            found[task] = LabelledFeatures(plain_NE, plain.labels_N)
        return found

    train, validation, test = wide(300), wide(100), wide(200)
    width = (1 + BLOCKS) * DIMENSION
    nothing = torch.randn(2, 60, width, generator=RANDOM)
    heads, novelty = frozen_heads(untrained(), train, validation, (nothing[0], nothing[1]))
    assert {head.weight_CD.shape[1] for head in heads.values()} == {width}
    for task, rows_ in test.items():
        right = (heads[task].logits(rows_.features_ND).argmax(-1) == rows_.labels_N).double().mean()
        assert right > 0.8, task
        assert novelty.belonging(rows_.features_ND, [task]).mean() > 0.5


def test_tasks_weigh_the_same_however_many_validation_rows_they_have() -> None:
    train, few = ({task: rows(task, count) for task in MEANS} for count in (60, 600))
    features_ND, labels_N = few["a"].features_ND, few["a"].labels_N
    many = few | {"a": LabelledFeatures(features_ND.repeat(4, 1), labels_N.repeat(4))}
    once, again = (fitted_heads(untrained(), train, one)["b"] for one in (few, many))
    torch.testing.assert_close(once.weight_CD, again.weight_CD)
    assert once.scale == pytest.approx(again.scale, rel=0.05)  # one more row of any class
