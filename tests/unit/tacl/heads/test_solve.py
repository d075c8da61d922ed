"""Solved heads against loops, normal equations and their limits."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tacl.evaluation.metrics import accuracy
from tacl.heads.expansion import IDENTITY, Expansion
from tacl.heads.linear import side_by_side
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


def statistics(task: str, expansion: Expansion = IDENTITY) -> HeadStatistics:
    f, j, labels = TASKS[task]
    classes = tuple(f"{task}{c}" for c in range(int(labels.max()) + 1))
    return measured(task, "base", f"{task}@1", classes, f, j, labels, expansion)


def moments(tasks: Sequence[str], expansion: Expansion = IDENTITY) -> Moments:
    return Moments.of([(1.0, statistics(task, expansion)) for task in tasks])


def all_rows(found: Moments) -> tuple[Tensor, Tensor, Tensor]:
    """z of every row, its column, and its weight, in the tasks' order of the moments."""
    z, column, weight, start = [], [], [], 0
    for task, size in found.tasks.items():
        f, j, labels = TASKS[task]
        z.append(f.double() + j.double())
        column.append(labels + start)
        weight.append(torch.full((len(labels),), 1 / len(labels) / len(found.tasks)).double())
        start += size
    return torch.cat(z), torch.cat(column), torch.cat(weight)


def test_lda_is_the_posterior_of_gaussians_with_one_covariance() -> None:
    found = moments("abc")
    z, column, weight = all_rows(found)
    classes = len(found.mean_CD)
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


@given(st.floats(-2, 1), st.sampled_from([("a",), "ab", ("c", "b", "a")]))
@settings(max_examples=20, deadline=None)
def test_ridge_solves_its_normal_equations(log_penalty: float, tasks: Sequence[str]) -> None:
    """Weighted least squares with an intercept that is not penalised, by gradient of the loss."""
    found = moments(tasks)
    z, column, weight = all_rows(found)
    target = torch.eye(len(found.mean_CD)).double()[column]
    centred = z - weight @ z
    penalty = 10**log_penalty * (weight[:, None] * centred.square()).sum(0).mean()
    head = ridge(found, 10**log_penalty)
    w, b = (value.double().requires_grad_() for value in (head.weight_CD, head.bias_C))
    loss = (weight[:, None] * (z @ w.T + b - target).square()).sum() + penalty * w.square().sum()
    for slope in torch.autograd.grad(loss, (w, b)):
        torch.testing.assert_close(slope, torch.zeros_like(slope), rtol=0, atol=1e-5)


def test_rows_do_not_outvote_a_small_task() -> None:
    """Rows of a task ten times over change nothing."""
    f, j, labels = TASKS["a"]
    ten_times = (f.repeat(10, 1), j.repeat(10, 1), labels.repeat(10))
    often = measured("a", "base", "a@1", ("a0", "a1"), *ten_times)
    for solve in (lambda m: lda(m, 0.01), lambda m: ridge(m, 0.01)):
        once = solve(Moments.of([(1.0, statistics("a")), (1.0, statistics("b"))])).of("a")
        ten = solve(Moments.of([(1.0, often), (1.0, statistics("b"))])).of("a")
        torch.testing.assert_close(once.weight_CD, ten.weight_CD, rtol=1e-3, atol=1e-4)


def test_a_task_weighs_what_its_term_says() -> None:
    """A weight of two is the task given twice."""
    one, other = statistics("a"), statistics("b")
    twice, listed = (
        Moments.of([(2.0, one), (1.0, other)]),
        Moments.of([(1.0, one), (1.0, one), (1.0, other)]),
    )
    torch.testing.assert_close(twice.within_DD, listed.within_DD)
    torch.testing.assert_close(twice.share_C[:2], 2 * listed.share_C[:2])
    torch.testing.assert_close(twice.prior_C[:2], 2 * listed.prior_C[:2])


def test_solved_heads_answer_with_the_task_known_and_unknown() -> None:
    for expansion in (IDENTITY, Expansion(40, 1)):
        head = lda(moments("abc", expansion), 1e-3)
        for task, (f, j, labels) in TASKS.items():
            known, unknown = head.of(task).logits(f + j), head.logits(f + j)
            torch.testing.assert_close(unknown[:, head.columns(task)], known)
            assert accuracy(known, labels) > 0.85
            assert accuracy(unknown, labels + head.columns(task).start) > 0.75


def test_heads_stand_side_by_side_again() -> None:
    head = lda(moments("ab", Expansion(10, 3)), 0.01)
    again = side_by_side([head.of(task) for task in head.tasks])
    z = torch.randn(5, D)
    torch.testing.assert_close(again.logits(z), head.logits(z))
    assert again.tasks == head.tasks
