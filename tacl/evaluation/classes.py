"""Which classes of a task a model gets right, and which classes it confuses them with."""

from __future__ import annotations

import torch
from torch import Tensor


def confusion(logits_NC: Tensor, labels_N: Tensor) -> Tensor:
    """int64 [C, C]: how many rows of class i (row) were answered with class j (column)."""
    classes = logits_NC.shape[-1]
    cells_N = labels_N * classes + logits_NC.argmax(-1)
    return torch.bincount(cells_N, minlength=classes * classes).view(classes, classes)


def accuracies(confusion_CC: Tensor) -> list[float | None]:
    """The share of each class's rows that is answered right; None for a class without rows."""
    return _shares(confusion_CC.diagonal(), confusion_CC.sum(1))


def f1_scores(confusion_CC: Tensor) -> list[float | None]:
    """2 TP / (2 TP + FP + FN) of each class; None for one without rows that is never answered."""
    right_C = confusion_CC.diagonal()
    return _shares(2 * right_C, confusion_CC.sum(0) + confusion_CC.sum(1))


def _shares(part_C: Tensor, whole_C: Tensor) -> list[float | None]:
    pairs = zip(part_C.tolist(), whole_C.tolist(), strict=True)
    return [part / whole if whole else None for part, whole in pairs]
