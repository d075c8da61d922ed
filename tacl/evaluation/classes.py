"""Which classes of a task a model gets right, and which classes it confuses them with."""

from __future__ import annotations

import torch
from torch import Tensor


def confusion(answers_N: Tensor, labels_N: Tensor, classes: int) -> Tensor:
    """int64 [C, C]: how many rows of class i (row) were answered with class j (column)."""
    cells_N = labels_N * classes + answers_N
    return torch.bincount(cells_N, minlength=classes * classes).view(classes, classes)


def accuracies(answers_N: Tensor, labels_N: Tensor, classes: int) -> list[float | None]:
    """The share of each class's rows that is answered right; None for a class without rows."""
    right_C = _counts(labels_N[answers_N == labels_N], classes)
    return _shares(right_C, _counts(labels_N, classes))


def f1_scores(answers_N: Tensor, labels_N: Tensor, classes: int) -> list[float | None]:
    """2 TP / (2 TP + FP + FN) of each class; None for one without rows that is never answered."""
    right_C = _counts(labels_N[answers_N == labels_N], classes)
    return _shares(2 * right_C, _counts(labels_N, classes) + _counts(answers_N, classes))


def _counts(classes_N: Tensor, classes: int) -> Tensor:
    return torch.bincount(classes_N, minlength=classes)


def _shares(part_C: Tensor, whole_C: Tensor) -> list[float | None]:
    pairs = zip(part_C.tolist(), whole_C.tolist(), strict=True)
    return [part / whole if whole else None for part, whole in pairs]
