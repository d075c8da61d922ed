"""Solved heads against loops, normal equations and their limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tacl.evaluation.metrics import accuracy
from tacl.heads.solve import Moments, expanded, lda, ridge
from tests.support.budget import budget

D = 6


def rows(task: int, classes: int, count: int) -> tuple[Tensor, Tensor]:
    """Classes of unequal size around different centres, far from those of other tasks."""
    random = torch.Generator().manual_seed(task)
    labels = torch.cat([torch.arange(classes).repeat(6), torch.zeros(count, dtype=torch.int64)])
    centres = 6 * torch.randn(classes, D, generator=random)
    spread = torch.randn(D, D, generator=random)
    f = centres[labels] + torch.randn(len(labels), D, generator=random) @ spread
    return f, labels


TASKS = {"a": rows(1, 2, 3), "b": rows(2, 3, 40), "c": rows(3, 4, 9)}
SIZES = {"a": 2, "b": 3, "c": 4}
CLASSES = {task: [f"{task}{c}" for c in range(size)] for task, size in SIZES.items()}


def moments(tasks: Sequence[str], phi: Callable[[Tensor], Tensor] = Tensor.double) -> Moments:
    rows = {task: (phi(TASKS[task][0]), TASKS[task][1]) for task in tasks}
    return Moments.of(rows.items(), CLASSES)


def columns(tasks: Sequence[str]) -> dict[str, slice]:
    ends = accumulate(SIZES[task] for task in tasks)
    return {task: slice(end - SIZES[task], end) for task, end in zip(tasks, ends, strict=True)}


def all_rows(tasks: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
    """Features of every row, its column, and its weight."""
    f, column, weight = [], [], []
    for task, own in columns(tasks).items():
        features, labels = TASKS[task]
        f.append(features.double())
        column.append(labels + own.start)
        weight.append(torch.full((len(labels),), 1 / len(labels) / len(tasks)).double())
    return torch.cat(f), torch.cat(column), torch.cat(weight)


def test_lda_is_the_posterior_of_gaussians_with_one_covariance() -> None:
    found = moments("abc")
    z, column, weight = all_rows("abc")
    classes = len(found.mean_CD)
    means = torch.stack([z[column == c].mean(0) for c in range(classes)])
    covariance = torch.zeros(D, D).double()
    for row, c, w in zip(z, column, weight, strict=True):
        covariance += w * torch.outer(row - means[c], row - means[c])
    covariance += 0.1 * covariance.diagonal().mean() * torch.eye(D).double()
    sizes = [size for size in SIZES.values() for _ in range(size)]
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
@settings(max_examples=budget(20), deadline=None)
def test_ridge_solves_its_normal_equations(log_penalty: float, tasks: Sequence[str]) -> None:
    """Weighted least squares with an intercept that is not penalised, by gradient of the loss."""
    found = moments(tasks)
    z, column, weight = all_rows(tasks)
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
    f, labels = TASKS["a"]
    often = {"a": (f.repeat(10, 1), labels.repeat(10)), "b": TASKS["b"]}
    for solve in (lambda m: lda(m, 0.01), lambda m: ridge(m, 0.01)):
        once, ten = solve(moments("ab")), solve(Moments.of(often.items(), CLASSES))
        torch.testing.assert_close(once.weight_CD, ten.weight_CD, rtol=1e-3, atol=1e-4)


def test_solved_heads_answer_with_the_task_known_and_unknown() -> None:
    for phi in (Tensor.clone, partial(expanded, width=40, seed=1)):
        head = lda(moments("abc", phi), 1e-3)
        for task, own in columns("abc").items():
            f, labels = TASKS[task]
            logits = head.logits(phi(f))
            assert accuracy(logits[:, own], labels) > 0.85
            assert accuracy(logits, labels + own.start) > 0.75
