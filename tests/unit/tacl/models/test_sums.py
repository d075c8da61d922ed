"""Rows under sums of vectors, against a pass for each."""

from __future__ import annotations

import torch

from tacl.heads.fitting import drawn_sums
from tacl.models.linearized import LinearizedEncoder
from tacl.models.mixed import summed
from tacl.models.sums import Sums
from tacl.vectors.params import Params
from tests.support import toy


def test_each_row_is_seen_under_a_sum_that_holds_its_own_vector() -> None:
    base = toy.backbone(torch.float32)
    module = LinearizedEncoder(base.encoder, base.trainable)
    taus = {name: toy.random_tau(base.encoder, seed=seed) for seed, name in enumerate("abcd")}
    items = toy.inputs(19, 0, torch.float32)
    moved_ND = Sums(module, base, [*taus], taus.__getitem__).features("b", items)
    drawn = drawn_sums(list(taus))
    assert any("b" not in names for names in drawn)
    for row, item in enumerate(items):
        names = drawn[row % len(drawn)] | {"b"}
        module.load_tau(summed(dict.fromkeys(names, 1.0), taus))
        f_1D, x_1D = module(base.collate([item]))
        torch.testing.assert_close(moved_ND[row], (f_1D + x_1D)[0].detach())


def test_whoever_brings_few_rows_at_a_time_meets_every_sum_in_turn() -> None:
    base = toy.backbone(torch.float32)
    module = LinearizedEncoder(base.encoder, base.trainable)
    taus = {name: toy.random_tau(base.encoder, seed=seed) for seed, name in enumerate("abcd")}
    sums, (item,) = Sums(module, base, [*taus], taus.__getitem__), toy.inputs(1, 0, torch.float32)
    together_ND = sums.features("b", [item] * 8)
    for first in range(10):
        moved_ND = sums.features("b", [item], first)
        torch.testing.assert_close(moved_ND[0], together_ND[first % 8])


def test_each_vector_is_read_once_and_again_for_rows_of_its_own_task() -> None:
    base = toy.backbone(torch.float32)
    module = LinearizedEncoder(base.encoder, base.trainable)
    read: list[str] = []

    def tau_of(name: str) -> Params:
        read.append(name)
        return toy.random_tau(base.encoder, seed=ord(name))

    sums = Sums(module, base, ["b", "a", "d", "c"], tau_of)
    assert read == list("abcd")
    sums.features("b", toy.inputs(8, 0, torch.float32))
    assert read[4:] == ["b"]
