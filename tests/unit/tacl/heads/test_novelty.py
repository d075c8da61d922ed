"""Inputs of none of a model's tasks are told from its own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tacl.heads.columns import Columns
from tacl.heads.fitting import LabelledFeatures, frozen_heads
from tacl.heads.head import Head
from tacl.heads.novelty import JUDGED, KEPT, Novelty, ReferenceScores, roc_auc

DIMENSION = 8
PLACES = {"a": 0, "b": 2, "": 4}  # of each task's first class; of the generic samples
RANDOM = torch.Generator().manual_seed(3)


def rows(task: str, count: int) -> LabelledFeatures:
    labels_N = torch.arange(count) % (1 if task == "" else 2)
    features_ND = 0.7 * torch.randn(count, DIMENSION, generator=RANDOM)
    features_ND[torch.arange(count), PLACES[task] + labels_N] += 3
    return LabelledFeatures(features_ND, labels_N)


def features(task: str, count: int) -> Tensor:
    return rows(task, count).features_ND


@pytest.fixture(scope="module")
def found() -> tuple[dict[str, Head], Novelty]:
    untrained = {t: Head(torch.zeros(2, DIMENSION), 8.0, (f"{t}0", f"{t}1")) for t in ("a", "b")}
    train, validation = ({task: rows(task, count) for task in untrained} for count in (200, 100))
    return frozen_heads(untrained, train, validation, (features("", 200), features("", 50)))


def test_the_generic_samples_get_no_head(found: tuple[dict[str, Head], Novelty]) -> None:
    assert {task: head.classes for task, head in found[0].items()} == {
        "a": ("a0", "a1"),
        "b": ("b0", "b1"),
    }


@pytest.mark.parametrize("own", [["a"], ["b"], ["a", "b"]])
def test_most_own_rows_belong_and_most_others_do_not(
    found: tuple[dict[str, Head], Novelty], own: list[str]
) -> None:
    novelty, others = found[1], PLACES.keys() - own
    least = novelty.threshold(own)
    for task in own:
        belongs_N = novelty.typicality(features(task, 400), own) >= least
        assert belongs_N.double().mean() > KEPT - 0.05
    for task in others:
        belongs_N = novelty.typicality(features(task, 400), own) >= least
        assert belongs_N.double().mean() < 0.2
    area = novelty.auroc({task: features(task, 200) for task in own})
    assert area is not None
    assert area > 0.95


def test_few_rows_to_judge_by_tell_hardly_more_of_the_own(
    found: tuple[dict[str, Head], Novelty],
) -> None:
    novelty, asked_ND, told = found[1], features("a", 400), []
    own_N = (novelty.task_N == 0).nonzero().flatten()
    assert novelty.distance_NT is not None
    for some_N in own_N.view(-1, 10):
        few = novelty.probability_NT[some_N], novelty.task_N[some_N]
        judge = Novelty(
            novelty.head, novelty.sizes, *few, novelty.space, novelty.distance_NT[some_N]
        )
        told.append(judge.judge(asked_ND, ["a"])[1].double().mean().item())
    assert sum(told) / len(told) < 0.15  # of two shares, each of 11 rows


def test_what_nobody_has_shown_does_not_belong(found: tuple[dict[str, Head], Novelty]) -> None:
    """It looks like no task, nor like the generic samples."""
    novelty, own = found[1], ["a", "b"]
    strange_ND = 0.7 * torch.randn(400, DIMENSION, generator=RANDOM)
    strange_ND[:, 6] += 3
    least = novelty.threshold(own)
    assert (novelty.typicality(strange_ND, own) < least).double().mean() > 0.9
    belonging_N, none_N = novelty.judge(strange_ND, own)
    assert torch.equal(none_N, novelty.typicality(strange_ND, own) < least)
    judged_N = torch.cat([novelty.belonging(features(task, 400), own) for task in own])
    assert (belonging_N < judged_N.quantile(1 - KEPT)).double().mean() < 0.8  # told by that alone


def test_one_of_an_earlier_version_knows_what_belongs(
    found: tuple[dict[str, Head], Novelty],
) -> None:
    params = found[1].to_params()
    old = {name: value for name, value in params.items() if "space" not in name and name != "far"}
    novelty = Novelty.from_params(old)
    least = novelty.threshold(["a"])
    assert (novelty.typicality(features("a", 400), ["a"]) >= least).double().mean() > KEPT - 0.05
    assert (novelty.typicality(features("b", 400), ["a"]) >= least).double().mean() < 0.2


def test_no_probability_is_more_than_one() -> None:
    tasks = [f"t{number}" for number in range(30)]
    heads = {t: Head(torch.randn(1, DIMENSION, generator=RANDOM), 1.0, (t,)) for t in tasks}
    rows_ND = torch.randn(500, DIMENSION, generator=RANDOM)
    novelty = Novelty.of(heads, {}, dict.fromkeys(tasks, rows_ND))
    assert Columns(heads).logits(rows_ND).softmax(-1).sum(-1).max() > 1
    assert novelty.belonging(rows_ND, tasks).max() == novelty._of(tasks).belonging_N.max() == 1


def test_of_strange_tasks_nothing_belongs(found: tuple[dict[str, Head], Novelty]) -> None:
    assert found[1].threshold(["c"]) == 0
    assert torch.equal(found[1].belonging(features("a", 5), ["c"]), torch.zeros(5))
    assert not found[1].judge(features("a", 5), ["c"])[1].any()  # there is nothing to judge by


def test_a_threshold_is_found_once_for_the_same_tasks_in_any_order(
    found: tuple[dict[str, Head], Novelty], monkeypatch: pytest.MonkeyPatch
) -> None:
    novelty = Novelty.from_params(found[1].to_params())
    known = {tasks: novelty.threshold(tasks) for tasks in (("a",), ("a", "b"))}
    monkeypatch.setattr(Tensor, "quantile", None)
    assert novelty.threshold(["b", "a"]) == known["a", "b"]
    assert novelty.threshold(["a"]) == known["a",]


def test_a_threshold_that_another_thread_forgets_at_once_is_given(
    found: tuple[dict[str, Head], Novelty],
) -> None:
    class Forgetting(dict[frozenset[str], ReferenceScores]):
        def __setitem__(self, key: frozenset[str], value: ReferenceScores) -> None:
            """As where the other one clears it next."""

    novelty = Novelty.from_params(found[1].to_params())
    known = novelty.threshold(["a"])
    object.__setattr__(novelty, "_known", Forgetting())
    assert novelty.threshold(["a"]) == known


def test_it_is_the_same_after_a_file(found: tuple[dict[str, Head], Novelty]) -> None:
    again = Novelty.from_params(found[1].to_params())
    inputs_ND = features("a", 9)
    assert torch.equal(again.belonging(inputs_ND, ["a"]), found[1].belonging(inputs_ND, ["a"]))
    assert torch.equal(again.typicality(inputs_ND, ["a"]), found[1].typicality(inputs_ND, ["a"]))
    assert again.threshold(["a", "b"]) == found[1].threshold(["a", "b"])


def test_judged_rows_are_bounded() -> None:
    heads = {t: Head(torch.zeros(1, DIMENSION), 1.0, (t,)) for t in ("a", "b")}
    novelty = Novelty.of(heads, {}, {task: torch.ones(JUDGED, DIMENSION) for task in heads})
    assert len(novelty.probability_NT) == JUDGED


def test_the_order_of_validation_rows_means_little() -> None:
    """Rows may come class by class: a part of them has every class."""
    by_class_ND = torch.eye(DIMENSION)[:2].repeat_interleave(JUDGED, 0)
    both = Head(torch.eye(DIMENSION)[:2], 1.0, ("b0", "b1"))
    first = Head(torch.eye(DIMENSION)[:1], 9.0, ("first",))
    told = Novelty.of({"a": first, "b": both}, {}, {"a": by_class_ND, "b": by_class_ND})
    assert len(told.probability_NT.unique(dim=0)) == 2


def test_the_area_counts_pairs() -> None:
    higher_N, lower_M = torch.tensor([0.9, 0.5, 0.5, 0.1]), torch.tensor([0.5, 0.3])
    pairs = [(h > k) + (h == k) / 2 for h in higher_N.tolist() for k in lower_M.tolist()]
    assert roc_auc(higher_N, lower_M) == pytest.approx(sum(pairs) / 8)


def test_one_of_before_inner_blocks_reads_f_alone(found: tuple[dict[str, Head], Novelty]) -> None:
    """As of a home that an earlier version made: what stands beside f changes nothing."""
    plain_ND = features("a", 20)
    beside_NE = torch.cat([plain_ND, torch.randn(20, 6, generator=RANDOM)], -1)
    expected_N = found[1].belonging(plain_ND, ["a"])
    torch.testing.assert_close(found[1].belonging(beside_NE, ["a"]), expected_N)
    expected_N = found[1].typicality(plain_ND, ["a"])
    torch.testing.assert_close(found[1].typicality(beside_NE, ["a"]), expected_N)
