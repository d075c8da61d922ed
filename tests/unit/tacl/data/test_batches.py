"""Evaluation batches, and labels with their items."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacl.data.batches import Labelled, evaluation_batches
from tacl.errors import LabelOutOfRange

token_counts = st.lists(st.integers(1, 128), min_size=1, max_size=30)


def texts(counts: list[int]) -> list[torch.Tensor]:
    return [torch.zeros(count, dtype=torch.int64) for count in counts]


@given(token_counts, st.integers(1, 8))
def test_evaluation_batches_hold_every_row_once_sorted_by_length(
    counts: list[int], batch: int
) -> None:
    batches = evaluation_batches(texts(counts), batch)
    rows = [row for rows in batches for row in rows]
    assert sorted(rows) == list(range(len(counts)))
    assert [counts[row] for row in rows] == sorted(counts)
    assert all(len(b) == batch for b in batches[:-1])


def test_images_have_no_length() -> None:
    images = [torch.zeros(3, side, side, dtype=torch.uint8) for side in (9, 8, 7)]
    assert evaluation_batches(images, 2) == [[0, 1], [2]]


def test_labels_belong_to_items() -> None:
    with pytest.raises(LabelOutOfRange, match="2 items with 3 labels"):
        Labelled(texts([1, 2]), torch.tensor([0, 1, 0]))
    assert len(Labelled(texts([1, 2]), torch.tensor([0, 1]))) == 2
