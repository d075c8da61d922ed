"""Evaluation batches and the rule about sharing a padded pass."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacl.data import Labelled, evaluation_batches, lengths, share_a_pass
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


@given(token_counts, token_counts)
def test_sharing_costs_at_most_a_quarter_more(a: list[int], b: list[int]) -> None:
    together = (len(a) + len(b)) * max(a + b)
    apart = len(a) * max(a) + len(b) * max(b)
    assert share_a_pass(a, b) == (together <= 1.25 * apart)


def test_short_texts_do_not_pay_for_long_ones() -> None:
    assert not share_a_pass([8] * 32, [128] * 4)
    assert share_a_pass([100] * 32, [128] * 4)


def test_images_always_share() -> None:
    images = [torch.zeros(3, 8, 8, dtype=torch.uint8)] * 5
    assert lengths(images) == [1] * 5
    assert share_a_pass(lengths(images), lengths(images[:1]))


def test_labels_belong_to_items() -> None:
    with pytest.raises(LabelOutOfRange, match="2 items with 3 labels"):
        Labelled(texts([1, 2]), torch.tensor([0, 1, 0]))
    assert len(Labelled(texts([1, 2]), torch.tensor([0, 1]))) == 2
