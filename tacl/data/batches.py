"""Prepared samples, and the batches in which they are evaluated and padded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacl.backbone import Item
from tacl.errors import LabelOutOfRange


@dataclass(frozen=True)
class Labelled:
    """Items and their labels [N], int64 class numbers."""

    items: list[Item]
    labels: Tensor

    def __post_init__(self) -> None:
        require_one_each(len(self.items), self.labels)

    def __len__(self) -> int:
        return len(self.items)


def require_one_each(items: int, labels: Tensor) -> None:
    """Raises LabelOutOfRange unless there is one label for each item."""
    if labels.shape != (items,):  # a column would broadcast against answers
        found = " x ".join(map(str, labels.shape))
        told = f"{found} labels" if found else "a single number as labels"
        raise LabelOutOfRange(f"{items} items with {told}; give one class number for each")


def evaluation_batches(items: Sequence[Item], batch: int) -> list[list[int]]:
    """Row numbers, each once, in batches of similar length, so that there is little padding."""
    lengths = [len(item) if item.ndim == 1 else 1 for item in items]  # images are not padded
    order = sorted(range(len(items)), key=lambda row: (lengths[row], row))
    return [order[i : i + batch] for i in range(0, len(order), batch)]


def in_order(
    items: Sequence[Item], batch: int, of: Callable[[list[Item]], tuple[Tensor, ...]]
) -> tuple[Tensor, ...]:
    """Applies `of` to batches of the items and joins what it returns: [N, ...] each, float32, on
    the CPU, in the items' order, whatever the batches were."""
    batches = evaluation_batches(items, batch)
    found = [of([items[row] for row in rows]) for rows in batches]
    place = torch.tensor([row for rows in batches for row in rows]).argsort()
    parts = zip(*found, strict=True)
    return tuple(torch.cat([chunk.float().cpu() for chunk in part])[place] for part in parts)
