"""Prepared samples, and the batches in which they are evaluated and padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from tacl.backbone import Item
from tacl.data.splits import Splits, batch_rows, sample_rows, split_rows
from tacl.errors import LabelOutOfRange

__all__ = [
    "Labelled",
    "Splits",
    "batch_rows",
    "evaluation_batches",
    "lengths",
    "sample_rows",
    "split_rows",
]


@dataclass(frozen=True)
class Labelled:
    """labels [N]: int64 class numbers of the items."""

    items: list[Item]
    labels: Tensor

    def __post_init__(self) -> None:
        if len(self.items) != len(self.labels):
            raise LabelOutOfRange(f"{len(self.items)} items with {len(self.labels)} labels")

    def __len__(self) -> int:
        return len(self.items)


def lengths(items: Sequence[Item]) -> list[int]:
    """What padding depends on: tokens of a text; 1 for every image."""
    return [len(item) if item.ndim == 1 else 1 for item in items]


def evaluation_batches(items: Sequence[Item], batch: int) -> list[list[int]]:
    """All rows once, in batches of similar length, so that little is padded."""
    sizes = lengths(items)
    order = sorted(range(len(items)), key=lambda row: (sizes[row], row))
    return [order[i : i + batch] for i in range(0, len(order), batch)]
