"""Rows under sums of vectors, against a pass for each."""

from __future__ import annotations

from pathlib import Path

import torch

from tacl.backbone import load_backbone
from tacl.backbone.padding import passes
from tacl.evaluation.tangents import moved_rows
from tacl.heads.fitting import drawn_sums
from tacl.models.linearized import LinearizedEncoder
from tacl.models.mixed import summed
from tacl.models.sums import Sums
from tacl.vectors.params import Params
from tests.support import bases, toy


def test_each_row_is_seen_under_a_sum_that_holds_its_own_vector() -> None:
    base = toy.backbone(torch.float32)
    module = LinearizedEncoder(base.encoder, base.trainable)
    taus = {name: toy.random_tau(base.encoder, seed=seed) for seed, name in enumerate("abcd")}
    items = toy.inputs(19, 0, torch.float32)
    plain_NE, moved_ND = Sums(module, base, [*taus], taus.__getitem__).rows("b", items)
    drawn = drawn_sums(list(taus))
    assert any("b" not in names for names in drawn)
    for row, item in enumerate(items):
        names = drawn[row % len(drawn)] | {"b"}
        module.load_tau(summed(dict.fromkeys(names, 1.0), taus))
        f_1D, x_1D = module(base.collate([item]))
        torch.testing.assert_close(moved_ND[row], (f_1D + x_1D)[0].detach())
        torch.testing.assert_close(plain_NE[row], base.plain(base.collate([item]))[0])


def test_whoever_brings_few_rows_at_a_time_meets_every_sum_in_turn() -> None:
    base = toy.backbone(torch.float32)
    module = LinearizedEncoder(base.encoder, base.trainable)
    taus = {name: toy.random_tau(base.encoder, seed=seed) for seed, name in enumerate("abcd")}
    sums, (item,) = Sums(module, base, [*taus], taus.__getitem__), toy.inputs(1, 0, torch.float32)
    together_ND = sums.rows("b", [item] * 8).moved_ND
    for first in range(10):
        moved_ND = sums.rows("b", [item], first).moved_ND
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
    sums.rows("b", toy.inputs(8, 0, torch.float32))
    assert read[4:] == ["b"]


def test_texts_of_different_lengths_are_seen_as_if_each_were_alone(tmp_path: Path) -> None:
    """The module cuts their batch into passes, and inner blocks are pooled in each of them."""
    base = load_backbone(f"hf:{bases.bert(tmp_path, layers=3)}?size=64")
    assert base.inner
    module = LinearizedEncoder(base.encoder, base.trainable)
    tau = {name: 0.01 * torch.ones_like(value) for name, value in module.tau_dict().items()}
    words = [2, 40, 3, 60, 2, 50, 1, 30]
    items = [base.prepare(" ".join(["word"] * count)) for count in words]
    assert len(passes(base.collate(items))) > 1
    plain_NE, moved_ND = moved_rows(module, base, items, tau)
    module.load_tau(tau)
    for row, item in enumerate(items):
        f_1D, x_1D = module(alone := base.collate([item]))
        torch.testing.assert_close(moved_ND[row], (f_1D + x_1D)[0].detach())
        torch.testing.assert_close(plain_NE[row], base.plain(alone)[0])
