"""The layerwise start of a refresh, against least squares on explicit rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacl.backbone import Backbone, BaseSpec, Batch, Item
from tacl.training.closed_form import DAMPING, closed_form
from tacl.vectors.params import Params
from tests.support import toy

STRENGTH = 3.0


def encoder_of(module: nn.Module, inputs: Any = None) -> Backbone:
    places = BaseSpec("timm", "layers"), module.double().eval(), inputs or toy.Numbers()
    return Backbone(*places, ("*",), 16.0)


def random_like(base: Backbone, seed: int) -> Params:
    random = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(value.shape, generator=random, dtype=torch.float64)
        for name, value in base.encoder.named_parameters()
    }


def explicit(own_NI: Tensor, other_NI: Tensor, tau_OI: Tensor, first_OI: Tensor) -> Tensor:
    """The same minimum, by the rows themselves: X of [rows; damping] X' = what is wanted."""
    moment_II = own_NI.T @ own_NI / len(own_NI) + STRENGTH * other_NI.T @ other_NI / len(other_NI)
    damping = DAMPING * moment_II.diagonal().mean()
    rows = [
        own_NI / len(own_NI) ** 0.5,
        other_NI * (STRENGTH / len(other_NI)) ** 0.5,
        damping.sqrt() * torch.eye(len(moment_II), dtype=torch.float64),
    ]
    wanted = [rows[0] @ first_OI.T, 0 * rows[1] @ first_OI.T, rows[2] @ tau_OI.T]
    return torch.linalg.lstsq(torch.cat(rows), torch.cat(wanted)).solution.T


def with_bias(tau: Params) -> Tensor:
    return torch.cat([tau["weight"].flatten(1), tau["bias"].unsqueeze(1)], 1)


def with_ones(rows_NI: Tensor) -> Tensor:
    return F.pad(rows_NI, (0, 1), value=1.0)


@pytest.mark.parametrize("lacks", [None, "bias"])
@pytest.mark.parametrize("refreshed_before", [False, True])
def test_a_layer_has_its_least_squares(refreshed_before: bool, lacks: str | None) -> None:
    base = encoder_of(nn.Linear(toy.INPUTS, 5))
    own, others = toy.inputs(40, 1), toy.inputs(50, 2)
    tau, first = random_like(base, 3), random_like(base, 4)
    first = first if refreshed_before else {name: block.clone() for name, block in tau.items()}
    if lacks is not None:
        first[lacks].zero_()
    had = {name: block for name, block in first.items() if name != lacks}
    found = closed_form(base, tau, had, own, others, STRENGTH)
    rows = [with_ones(torch.stack(items)) for items in (own, others)]
    wanted_OI = explicit(rows[0], rows[1], with_bias(tau), with_bias(first))
    assert torch.allclose(with_bias(found), wanted_OI)


def test_a_convolution_is_the_layer_of_its_patches() -> None:
    base = encoder_of(nn.Conv2d(2, 3, 2, stride=2))
    random = torch.Generator().manual_seed(0)
    own, others = (
        list(torch.randn(6, 2, 4, 4, generator=random, dtype=torch.float64) + k) for k in (1, 2)
    )
    tau = random_like(base, 1)
    found = closed_form(base, tau, tau, own, others, STRENGTH)
    patches = [
        with_ones(F.unfold(torch.stack(items), 2, stride=2).transpose(1, 2).flatten(0, 1))
        for items in (own, others)
    ]
    wanted_OI = explicit(patches[0], patches[1], with_bias(tau), with_bias(tau))
    assert torch.allclose(with_bias(found), wanted_OI)
    assert found["weight"].shape == tau["weight"].shape


def test_other_blocks_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = nn.Conv2d(2, 2, 1, groups=2), nn.Flatten(), nn.Linear(8, 4), nn.LayerNorm(4)
    base = encoder_of(nn.Sequential(*layers))
    items = list(torch.randn(8, 2, 2, 2, dtype=torch.float64))
    tau = random_like(base, 1)
    assert closed_form(base, tau, tau, items, items, 1.0).keys() == {"2.weight", "2.bias"}
    with monkeypatch.context() as narrow:
        narrow.setattr("tacl.training.closed_form.WIDEST", 7)
        assert closed_form(base, tau, tau, items, items, 1.0) == {}
    without_bias = {name: tau[name] for name in ("2.weight", "3.weight")}
    found = closed_form(base, without_bias, without_bias, items, items, 1.0)
    assert found.keys() == {"2.weight"}


def test_a_layer_into_which_nothing_comes_stays() -> None:
    base = encoder_of(nn.Linear(3, 2, bias=False))
    nothing, tau = [torch.zeros(3, dtype=torch.float64)] * 4, random_like(base, 1)
    found = closed_form(base, tau, tau, nothing, nothing, STRENGTH)
    assert torch.allclose(found["weight"], tau["weight"])


class TwoWays(nn.Module):
    """Rows of few numbers go another way than rows of many."""

    def __init__(self) -> None:
        super().__init__()
        self.few, self.many = nn.Linear(2, 4), nn.Linear(3, 4)

    def forward(self, batch: Tensor) -> Tensor:
        return (self.few if batch.shape[1] == 2 else self.many)(batch)


def test_a_layer_that_only_own_rows_pass_stays() -> None:
    base = encoder_of(TwoWays())
    few, many = ([torch.ones(size, dtype=torch.float64)] * 4 for size in (2, 3))
    tau = random_like(base, 1)
    found = closed_form(base, tau, tau, [*few, *many], many, STRENGTH)
    assert found.keys() == {"many.weight", "many.bias"}


def test_an_encoder_of_half_the_precision_moves_a_vector_of_the_whole() -> None:
    half = Backbone(BaseSpec("timm", "layers"), nn.Linear(3, 2).half(), toy.Numbers(), ("*",), 16.0)
    items = list(torch.randn(8, 3, dtype=torch.float16))
    tau = {name: torch.ones(value.shape) for name, value in half.encoder.named_parameters()}
    found = closed_form(half, tau, tau, items, items, STRENGTH)
    assert {value.dtype for value in found.values()} == {torch.float32}
    assert found["weight"].norm() < tau["weight"].norm()


@dataclass
class Padded(toy.Numbers):
    """Rows [L, I] of any length."""

    def collate(self, items: list[Item], device: torch.device) -> Batch:
        return nn.utils.rnn.pad_sequence(items, batch_first=True, padding_value=9.0)


def test_padding_is_no_input_and_a_long_row_counts_as_a_short_one() -> None:
    base = encoder_of(nn.Linear(3, 2, bias=False), Padded())
    long, short = torch.randn(6, 3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    tau = random_like(base, 1)
    found = closed_form(base, tau, tau, [long, short], [short], STRENGTH)
    once_NI = torch.cat([long * (8 / 12) ** 0.5, short * (8 / 4) ** 0.5])  # half of all, each
    wanted_OI = explicit(once_NI, short, tau["weight"], tau["weight"])
    assert torch.allclose(found["weight"], wanted_OI)
