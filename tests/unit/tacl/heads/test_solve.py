"""Solved heads against loops, normal equations and their limits."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tacl.errors import BadRecipe, BaseMismatch, UnknownTask
from tacl.evaluation.metrics import accuracy
from tacl.heads.expansion import IDENTITY, Expansion
from tacl.heads.linear import LinearHead, side_by_side
from tacl.heads.solve import Moments, lda, ridge
from tacl.heads.statistics import HeadStatistics, measured

D = 6
Rows = tuple[Tensor, Tensor, Tensor]


def rows(task: int, classes: int, count: int) -> Rows:
    """Classes of unequal size around different centres, far from those of other tasks."""
    random = torch.Generator().manual_seed(task)
    labels = torch.cat([torch.arange(classes).repeat(6), torch.zeros(count, dtype=torch.int64)])
    centres = 6 * torch.randn(classes, D, generator=random)
    spread = torch.randn(D, D, generator=random)
    f = centres[labels] + torch.randn(len(labels), D, generator=random) @ spread
    return f, 0.5 * torch.randn(len(labels), D, generator=random), labels


TASKS = {"a": rows(1, 2, 3), "b": rows(2, 3, 40), "c": rows(3, 4, 9)}


def statistics(task: str, expansion: Expansion = IDENTITY, base: str = "base") -> HeadStatistics:
    f, j, labels = TASKS[task]
    classes = tuple(f"{task}{c}" for c in range(int(labels.max()) + 1))
    return measured(task, base, f"{task}@1", classes, f, j, labels, expansion)


def moments(terms: dict[str, float], expansion: Expansion = IDENTITY) -> Moments:
    return Moments.of([(a, statistics(task, expansion)) for task, a in terms.items()])


def all_rows(found: Moments, terms: dict[str, float]) -> tuple[Tensor, Tensor, Tensor]:
    """z of every row, its column, and its weight, in the tasks' order of the moments."""
    z, column, weight, start = [], [], [], 0
    for task, size in found.tasks.items():
        f, j, labels = TASKS[task]
        z.append(f.double() + terms[task] * j.double())
        column.append(labels + start)
        weight.append(torch.full((len(labels),), 1 / len(labels) / len(found.tasks)).double())
        start += size
    return torch.cat(z), torch.cat(column), torch.cat(weight)


def test_lda_is_the_posterior_of_gaussians_with_one_covariance() -> None:
    terms = {"a": 1.0, "b": 0.5, "c": 1.0}
    found = moments(terms)
    z, column, weight = all_rows(found, terms)
    classes = len(found.classes)
    means = torch.stack([z[column == c].mean(0) for c in range(classes)])
    covariance = torch.zeros(D, D).double()
    for row, c, w in zip(z, column, weight, strict=True):
        covariance += w * torch.outer(row - means[c], row - means[c])
    covariance += 0.1 * covariance.diagonal().mean() * torch.eye(D).double()
    sizes = [size for size in found.tasks.values() for _ in range(size)]
    logits = lda(found, 0.1).logits(z.float())
    inverse = torch.linalg.inv(covariance)
    for b in range(0, len(z), 7):
        joint = torch.tensor(
            [
                math.log(1 / (3 * sizes[c]))
                - 0.5 * float((z[b] - means[c]) @ inverse @ (z[b] - means[c]))
                for c in range(classes)
            ]
        )
        torch.testing.assert_close(
            logits[b].softmax(-1), joint.softmax(-1).float(), rtol=1e-3, atol=1e-4
        )


@given(st.floats(-2, 1), st.sampled_from([("a",), ("a", "b"), ("c", "b", "a")]))
@settings(max_examples=20, deadline=None)
def test_ridge_solves_its_normal_equations(log_penalty: float, tasks: Sequence[str]) -> None:
    """Weighted least squares with an intercept that is not penalised, by gradient of the loss."""
    terms = dict.fromkeys(tasks, 1.0)
    found = moments(terms)
    z, column, weight = all_rows(found, terms)
    target = torch.eye(len(found.classes)).double()[column]
    centred = z - weight @ z
    penalty = 10**log_penalty * (weight[:, None] * centred.square()).sum(0).mean()
    head = ridge(found, 10**log_penalty)
    w, b = (value.double().requires_grad_() for value in (head.weight_CD, head.bias_C))
    loss = (weight[:, None] * (z @ w.T + b - target).square()).sum() + penalty * w.square().sum()
    for slope in torch.autograd.grad(loss, (w, b)):
        torch.testing.assert_close(slope, torch.zeros_like(slope), rtol=0, atol=1e-5)


def test_a_large_penalty_leaves_the_start_and_none_forgets_it() -> None:
    found = moments({"a": 1.0, "b": 1.0})
    start = torch.randn(len(found.classes), D, generator=torch.Generator().manual_seed(8))
    far = ridge(found, 1e7, start).weight_CD
    scale = far[0, 0] / start[0, 0]
    torch.testing.assert_close(far, scale * start, rtol=1e-3, atol=1e-5)
    free, bound = ridge(found, 1e-9), ridge(found, 1e-9, start)
    torch.testing.assert_close(free.weight_CD, bound.weight_CD, rtol=1e-4, atol=1e-5)
    assert ridge(found, 1e7).weight_CD.abs().max() < 1e-5  # without a start: to nothing


def test_the_scale_of_the_start_is_the_one_that_fits_best() -> None:
    terms = {"a": 1.0, "b": 1.0}
    found = moments(terms)
    z, column, weight = all_rows(found, terms)
    start = lda(found, 0.3).weight_CD
    head = ridge(found, 1e9, 5 * start)
    centred, target = z - weight @ z, torch.eye(len(found.classes)).double()[column]
    target = target - weight @ target

    def loss(factor: float) -> float:
        error = factor * centred @ head.weight_CD.double().T - target
        return (weight[:, None] * error.square()).sum().item()

    assert loss(1.0) <= min(loss(0.97), loss(1.03))


@given(st.permutations(list(TASKS)))
@settings(max_examples=6, deadline=None)
def test_the_order_of_a_recipe_decides_nothing(order: list[str]) -> None:
    terms = {"a": 1.0, "b": 0.5, "c": 0.25}
    for solve in (lambda m: lda(m, 0.01), lambda m: ridge(m, 0.01)):
        one, other = solve(moments(terms)), solve(moments({task: terms[task] for task in order}))
        assert one.classes == other.classes
        assert torch.equal(one.weight_CD, other.weight_CD)
        assert torch.equal(one.bias_C, other.bias_C)


def test_a_task_that_is_out_leaves_no_trace() -> None:
    without = lda(moments({"a": 1.0, "c": 1.0}), 0.01)
    negated = lda(moments({"a": 1.0, "b": -1.0, "c": 1.0}), 0.01)
    assert negated.tasks == without.tasks
    assert torch.equal(negated.weight_CD, without.weight_CD)
    with pytest.raises(UnknownTask, match="'b'"):
        negated.of("b")


def test_impossible_recipes_are_refused() -> None:
    with pytest.raises(BadRecipe, match="nothing to answer with"):
        moments({"a": -1.0})
    with pytest.raises(BadRecipe, match="two vectors of a"):
        Moments.of([(1.0, statistics("a")), (0.5, statistics("a"))])
    with pytest.raises(BaseMismatch):
        Moments.of([(1.0, statistics("a")), (1.0, statistics("b", base="other"))])
    with pytest.raises(BaseMismatch):
        Moments.of([(1.0, statistics("a")), (1.0, statistics("b", Expansion(8)))])


def test_rows_do_not_outvote_a_small_task() -> None:
    """Rows of a task ten times over change nothing."""
    f, j, labels = TASKS["a"]
    ten_times = (f.repeat(10, 1), j.repeat(10, 1), labels.repeat(10))
    often = measured("a", "base", "a@1", ("a0", "a1"), *ten_times)
    for solve in (lambda m: lda(m, 0.01), lambda m: ridge(m, 0.01)):
        once = solve(Moments.of([(1.0, statistics("a")), (1.0, statistics("b"))])).of("a")
        ten = solve(Moments.of([(1.0, often), (1.0, statistics("b"))])).of("a")
        torch.testing.assert_close(once.weight_CD, ten.weight_CD, rtol=1e-3, atol=1e-4)


def test_solved_heads_answer_with_the_task_known_and_unknown() -> None:
    terms = dict.fromkeys(TASKS, 1.0)
    for expansion in (IDENTITY, Expansion(40, 1)):
        head = lda(moments(terms, expansion), 1e-3)
        for task, (f, j, labels) in TASKS.items():
            known, unknown = head.of(task).logits(f + j), head.logits(f + j)
            torch.testing.assert_close(unknown[:, head.columns(task)], known)
            assert accuracy(known, labels) > 0.85
            assert accuracy(unknown, labels + head.columns(task).start) > 0.75


def test_a_head_survives_storage_and_stands_beside_others() -> None:
    head = lda(moments({"a": 1.0, "b": 1.0}, Expansion(10, 3)), 0.01)
    again = LinearHead.from_params(head.to_params())
    z = torch.randn(5, D)
    assert torch.equal(again.logits(z), head.logits(z))
    assert (again.classes, again.tasks) == (head.classes, head.tasks)
    again = side_by_side([head.of(task) for task in head.tasks])
    torch.testing.assert_close(again.logits(z), head.logits(z))
    with pytest.raises(ValueError, match="two of the heads"):
        side_by_side([head, head])
