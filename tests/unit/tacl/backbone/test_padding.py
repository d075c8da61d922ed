"""Passes with little padding: the best cut by trying all, and the same numbers as row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tacl.backbone import Batch, padding
from tacl.backbone.padding import cut, ends, passes
from tacl.models.linearized import LinearizedEncoder
from tacl.models.ordinary import OrdinaryEncoder

lengths = st.lists(st.integers(1, 30), min_size=1, max_size=7)


def partitions(rows: list[int]) -> Iterator[list[list[int]]]:
    """Every way to make groups of rows, neighbours or not."""
    if not rows:
        yield []
        return
    first, *rest = rows
    for groups in partitions(rest):
        yield [[first], *groups]
        for i, group in enumerate(groups):
            yield [*groups[:i], [first, *group], *groups[i + 1 :]]


def cost(groups: list[list[int]], lengths_B: list[int], launch: int) -> int:
    return sum(len(g) * max(lengths_B[row] for row in g) + launch for g in groups)


@given(lengths, st.integers(0, 60))
def test_no_other_groups_cost_less(lengths_B: list[int], launch: int) -> None:
    found = cut(lengths_B, launch)
    assert sorted(row for group in found for row in group) == list(range(len(lengths_B)))
    every = partitions(list(range(len(lengths_B))))
    assert cost(found, lengths_B, launch) == min(cost(g, lengths_B, launch) for g in every)


@given(lengths, st.integers(0, 60))
def test_short_rows_come_first(lengths_B: list[int], launch: int) -> None:
    longest = [max(lengths_B[row] for row in group) for group in cut(lengths_B, launch)]
    assert all(a <= b for a, b in pairwise(longest))


def padded(counts: Sequence[int]) -> dict[str, Tensor]:
    items = [torch.arange(1, count + 1) for count in counts]
    pad = nn.utils.rnn.pad_sequence
    masks = [torch.ones_like(item) for item in items]
    return {"input_ids": pad(items, True), "attention_mask": pad(masks, True)}


def test_images_and_rows_of_one_length_stay_together() -> None:
    images = torch.zeros(40, 3, 8, 8)
    assert passes(images) == [(list(range(40)), images)]
    texts = padded([128] * 16)
    assert passes(texts) == [(list(range(16)), texts)]


def test_a_long_text_does_not_lengthen_the_short_ones() -> None:
    found = passes(padded([128, *[10] * 15]))
    assert [rows for rows, _ in found] == [list(range(1, 16)), [0]]
    assert [tuple(part["input_ids"].shape) for _, part in found if isinstance(part, dict)] == [
        (15, 10),
        (1, 128),
    ]
    assert all(isinstance(part, dict) and bool(part["attention_mask"].all()) for _, part in found)


class Words(nn.Module):
    """The masked mean of embedded tokens, then one layer; remembers the shape of every pass."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.layer = nn.Embedding(200, 6), nn.Linear(6, 5)
        self.shapes: list[tuple[int, ...]] = []

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        self.shapes.append(tuple(batch["input_ids"].shape))
        mask = batch["attention_mask"].unsqueeze(-1)
        embedded = torch.tanh(self.table(batch["input_ids"])) * mask
        return self.layer(embedded.sum(1) / mask.sum(1))


@pytest.mark.parametrize("kind", [LinearizedEncoder, OrdinaryEncoder])
def test_numbers_and_gradients_do_not_depend_on_the_passes(
    kind: type[LinearizedEncoder | OrdinaryEncoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = padded([9, 120, 3, 9, 50, 3])

    def run() -> tuple[list[tuple[int, ...]], list[Tensor]]:
        encoder = Words().double().eval()
        module = kind(encoder, ("layer.*",))
        module.load_tau({n: torch.ones_like(module.theta0(n)) for n in module.blocks})
        features_BD, tangent_BD = module(batch)
        (features_BD + tangent_BD).square().mul(torch.arange(6.0)[:, None]).sum().backward()
        gradients = [p.grad for p in module.parameters() if p.grad is not None]
        return encoder.shapes, [features_BD, tangent_BD, *gradients]

    shapes, cut_apart = run()
    assert shapes == [(4, 9), (1, 50), (1, 120)]
    monkeypatch.setattr(padding, "CPU_LAUNCH", 10**6)
    shapes, together = run()
    assert shapes == [(6, 120)]
    assert len(cut_apart) == 4
    for found, expected in zip(cut_apart, together, strict=True):
        torch.testing.assert_close(found, expected)


def test_rows_that_are_padded_on_the_left_or_have_gaps_keep_their_columns() -> None:
    counts = [128, 128, *[10] * 14]
    right = padded(counts)
    left = {name: value_BL.flip(1) for name, value_BL in right.items()}
    for batch in (left, right | {"attention_mask": right["attention_mask"].clone()}):
        batch["attention_mask"][0, 5:9] = 0
        kept = sum(part["attention_mask"].sum() for _, part in passes(batch))  # type: ignore[index]
        assert kept == batch["attention_mask"].sum()
    assert len(passes(right)) == 2
    assert len(passes(left)) == 1


def test_the_last_token_is_found_on_either_side() -> None:
    right = padded([2, 5])["attention_mask"]
    assert ends(right).tolist() == [2, 5]
    assert ends(right.flip(1)).tolist() == [5, 5]


def test_on_another_device_a_pass_costs_more() -> None:
    batch: Batch = {name: value.to("meta") for name, value in padded([128, 1, 1]).items()}
    assert len(passes(batch)) == 1
