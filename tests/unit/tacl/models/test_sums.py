"""Rows under sums of vectors, against a pass for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
    moved_ND = Sums(module, base, taus).features("b", items)
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
    sums, (item,) = Sums(module, base, taus), toy.inputs(1, 0, torch.float32)
    together_ND = sums.features("b", [item] * 8)
    for first in range(10):
        moved_ND = sums.features("b", [item], first)
        torch.testing.assert_close(moved_ND[0], together_ND[first % 8])


class Read(Mapping[str, Params]):
    """Vectors of which is counted who was read."""

    def __init__(self, taus: Mapping[str, Params]) -> None:
        self._taus = taus
        self.names: list[str] = []

    def __getitem__(self, name: str) -> Params:
        self.names.append(name)
        return self._taus[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._taus)

    def __len__(self) -> int:
        return len(self._taus)


def test_each_vector_is_read_once_and_again_for_rows_of_its_own_task() -> None:
    base = toy.backbone(torch.float32)
    module = LinearizedEncoder(base.encoder, base.trainable)
    taus = Read({name: toy.random_tau(base.encoder, seed=seed) for seed, name in enumerate("abcd")})
    sums = Sums(module, base, taus)
    assert taus.names == list("abcd")
    sums.features("b", toy.inputs(8, 0, torch.float32))
    assert taus.names[4:] == ["b"]
