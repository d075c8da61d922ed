"""tauJp: the penalty that keeps a task vector from interfering with every other task.

Interference of tau on an input x of another task is the change J(x) tau of its features there.
The penalty is the mean size of that change over unlabelled inputs of other tasks.
Source: Yoshida et al., ICLR 2025 (OpenReview 1VwWi6zbxs), equations 8 (strict) and 9 (cyclical).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from tacl.training.config import Norm

Task = TypeVar("Task")


def other_tasks(penalty: str, step: int, known: Sequence[Task], rows: int = 1) -> Sequence[Task]:
    """The tasks whose samples penalise this step; nothing else decides which come next.

    Cyclical takes one, step mod number of other tasks, so that the cost of a step does not depend
    on their number; mixed deals `rows` in the same order, from where the step before ended, and
    names the task of each row; strict takes all. "none", an empty store, and "curvature", which
    has statistics instead of samples (tacl.curvature), take no task.
    """
    if penalty in ("none", "curvature") or not known:
        return ()
    if penalty == "strict":
        return known
    if penalty == "mixed":
        return [known[place % len(known)] for place in range(step * rows, (step + 1) * rows)]
    return (known[step % len(known)],)


def relative_tau_jp(tangent_BD: Tensor, norm: Norm, feature_norm_B: Tensor) -> Tensor:
    """|J(x) tau| of each row, relative to the typical |f(x; theta0)| of its task: [B].

    Features of one encoder may be ten times as large as those of another; relative to them, lambda
    is dimensionless. The unsquared norm is safe at tau = 0, where torch gives it a gradient of 0.
    """
    length_B = torch.linalg.vector_norm(tangent_BD, dim=-1) / feature_norm_B
    return length_B if norm == "l2" else length_B.square()


def penalty(tangent_BD: Tensor, feature_norm: Tensor | float, norm: Norm = "l2_squared") -> Tensor:
    """tauJp over a batch of unlabelled inputs of ONE other task, for any training loop: a scalar.

    loss = task loss + lambda * penalty(J(x) tau, mean |f(x; theta0)|). It has no unit, so lambda
    means the same for every encoder; by default, `tacl.train` takes 3, or 1 for a base model
    without a text tower.

    Args:
        tangent_BD: J(x) tau of the other task's rows, with its graph.
        feature_norm: mean |f(x; theta0)|_2 over rows of that task, positive.
        norm: mean of squares, as in the theory, or "l2", mean of lengths, as in the published code.

    Raises ValueError for a batch of no rows.
    Source: OpenReview 1VwWi6zbxs, equations 8 and 9: one other task a step, or the mean over all.
    """
    if len(tangent_BD) == 0:
        raise ValueError("the penalty over no rows is undefined; give at least one unlabelled row")
    feature_norm_B = torch.as_tensor(feature_norm).to(tangent_BD).expand(len(tangent_BD))
    return relative_tau_jp(tangent_BD, norm, feature_norm_B).mean()
