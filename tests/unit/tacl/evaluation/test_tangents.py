"""Cached tangents equal the dual forward of the sum, row by row in the order of the items."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tacl.backbone import Batch
from tacl.evaluation.tangents import Cached, cached_tangents
from tacl.models.linearized import LinearizedEncoder
from tacl.vectors.params import Params, combine


class SumOfTokens:
    """A fake of the linearized encoder: f = sum of embedded tokens, J tau = the same with tau."""

    def __init__(self) -> None:
        self.theta0 = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
        self.tau = {"table": torch.full((10, 3), 7.0)}
        self.longest: list[int] = []
        self.recorded = False

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        assert isinstance(batch, Tensor)
        self.longest.append(batch.shape[1])
        self.recorded |= torch.is_grad_enabled()
        mask = (batch >= 0).unsqueeze(-1)
        return tuple(
            (t[batch.clamp(min=0)] * mask).sum(1) for t in (self.theta0, self.tau["table"])
        )  # pyright: ignore[reportReturnType]

    def load_tau(self, tau: Params) -> None:
        self.tau = tau

    def tau_dict(self) -> Params:
        return self.tau


class Padded:
    """A fake of the encoder's preprocessing: -1 is padding."""

    def collate(self, items: Sequence[Tensor]) -> Tensor:
        return nn.utils.rnn.pad_sequence(list(items), batch_first=True, padding_value=-1)


def tokens(counts: Sequence[int]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(0, 10, (count,), generator=generator) for count in counts]


def taus(*names: str) -> dict[str, Params]:
    generator = torch.Generator().manual_seed(2)
    return {n: {"table": torch.randn(10, 3, generator=generator)} for n in names}


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 5))
def test_rows_come_in_the_order_of_the_items(counts: list[int], batch: int) -> None:
    module, items, vectors = SumOfTokens(), tokens(counts), taus("a", "b")
    cached = cached_tangents(module, Padded(), items, vectors, batch)
    for row, item in enumerate(items):
        torch.testing.assert_close(cached.features_ND[row], module.theta0[item].sum(0))
        for name, tau in vectors.items():
            torch.testing.assert_close(cached.tangents[name][row], tau["table"][item].sum(0))


def test_short_items_are_not_padded_to_long_ones() -> None:
    module = SumOfTokens()
    cached_tangents(module, Padded(), tokens([9, 1, 9, 1]), taus("a"), batch=2)
    assert module.longest == [1, 9]


def test_the_module_has_its_own_tau_again_and_no_graph_is_made() -> None:
    module = SumOfTokens()
    cached_tangents(module, Padded(), tokens([2, 3]), taus("a"))
    assert torch.equal(module.tau["table"], torch.full((10, 3), 7.0))
    assert not module.recorded


def test_nothing_to_do_is_refused() -> None:
    with pytest.raises(ValueError, match="0 items"):
        cached_tangents(SumOfTokens(), Padded(), [], taus("a"))
    with pytest.raises(ValueError, match="0 vectors"):
        cached_tangents(SumOfTokens(), Padded(), tokens([1]), {})


def test_linearized_is_addition_and_leaves_the_cache_alone() -> None:
    cached = Cached(torch.ones(2, 3), {"a": torch.ones(2, 3), "b": torch.full((2, 3), 5.0)})
    torch.testing.assert_close(cached.linearized({"a": 2.0, "b": -1.0}), torch.full((2, 3), -2.0))
    torch.testing.assert_close(cached.linearized({}), torch.ones(2, 3))
    assert torch.equal(cached.features_ND, torch.ones(2, 3))
    with pytest.raises(KeyError):
        cached.linearized({"unknown": 1.0})


class Stacked:
    def collate(self, items: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(items)).float() / 255


@given(st.lists(st.floats(-2, 2, width=32), min_size=3, max_size=3))
def test_any_combination_equals_the_dual_forward_of_the_sum(cs: list[float]) -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.GELU(), nn.LayerNorm(8)).eval()
    module = LinearizedEncoder(encoder)
    items = list(torch.randint(0, 256, (5, 3, 2, 2), dtype=torch.uint8))
    vectors = {
        str(t): {name: torch.randn_like(p) for name, p in encoder.named_parameters()}
        for t in range(3)
    }
    cached = cached_tangents(module, Stacked(), items, vectors, batch=2)
    module.load_tau(combine([(c, vectors[str(t)]) for t, c in enumerate(cs)]))
    features, tangent = module(Stacked().collate(items))
    coefficients = {str(t): c for t, c in enumerate(cs)}
    torch.testing.assert_close(
        cached.linearized(coefficients), features + tangent, rtol=1e-4, atol=1e-4
    )
