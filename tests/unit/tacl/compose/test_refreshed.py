"""One delta for a whole composition against explicit least squares."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tacl.compose.refreshed import judge_composition, refresh_composition
from tacl.errors import EmptySplit
from tacl.models.linearized import LinearizedEncoder
from tacl.training.config import RefreshConfig
from tacl.vectors.params import Params, combine
from tests.support import toy

BIASES = ("encoder.0.bias", "encoder.3.bias")  # so few unknowns that not all rows can be served
SIGNS = {"a": 1.0, "b": -0.5}


def one_input(base: toy.Backbone, name: str, seed: int) -> toy.Store:
    """One input five times: the rows held out are those learnt from."""
    return toy.store(base, name, toy.inputs(1, seed) * 5)


def bias_vector(base: toy.Backbone, seed: int) -> Params:
    tau = toy.random_tau(base.encoder, seed=seed)
    return {name: tau[name] for name in BIASES}


def test_it_is_the_least_squares_solution() -> None:
    base = toy.backbone()
    stores = [one_input(base, name, seed) for seed, name in enumerate(("a", "b", "generic"))]
    taus = {"a": bias_vector(base, 1), "b": bias_vector(base, 2)}
    J = torch.stack([_bias_jacobian(base, store.items[0]) for store in stores])  # [T, D, P]
    flat = {name: toy.flat(tau) for name, tau in taus.items()}
    total = sum(SIGNS[name] * value for name, value in flat.items())
    assert isinstance(total, Tensor)
    own = torch.stack([J[0] @ flat["a"], -0.5 * J[1] @ flat["b"], torch.zeros(J.shape[1])])
    wrong = J @ total - own
    delta = torch.linalg.lstsq(J.flatten(0, 1), -wrong.flatten()).solution
    least = ((J @ delta + wrong).square().sum(-1)).tolist()
    size = own[:2].square().sum(-1).mean().item()

    config = RefreshConfig(seed=1, steps=600, learning_rate=0.3, batch=3, other_batch=0, clip=100.0)
    module = LinearizedEncoder(base.encoder, BIASES)
    found = refresh_composition(module, base, taus, SIGNS, stores, config)
    before = wrong.square().sum(-1) / size
    assert list(found.before.values()) == pytest.approx(before.tolist(), rel=1e-4)
    assert sum(found.after.values()) == pytest.approx(sum(least) / size, rel=0.05, abs=1e-4)
    assert sum(found.after.values()) < 0.5 * sum(found.before.values())
    composed = combine([(SIGNS[name], tau) for name, tau in taus.items()])
    moved = toy.flat(found.tau) - toy.flat(composed)
    after = (J @ moved + wrong).square().sum(-1) / size
    torch.testing.assert_close(
        after, torch.tensor(list(found.after.values())).double(), rtol=1e-3, atol=1e-5
    )


def _bias_jacobian(base: toy.Backbone, item: Tensor) -> Tensor:
    sizes = {name: value.numel() for name, value in base.encoder.named_parameters()}
    pieces = toy.jacobian(base.encoder, [item])[0].split(list(sizes.values()), dim=1)
    by_name = dict(zip(sizes, pieces, strict=True))
    return torch.cat([by_name[name] for name in BIASES], 1)


def test_it_serves_rows_never_seen_and_needs_no_labels() -> None:
    base = toy.backbone()
    stores = [toy.store(base, name, toy.inputs(60, seed)) for seed, name in enumerate("abc")]
    taus = {name: toy.random_tau(base.encoder, seed=seed) for seed, name in enumerate("abc")}
    config = RefreshConfig(seed=1, steps=120, samples=50)
    module = LinearizedEncoder(base.encoder)
    found = refresh_composition(module, base, taus, dict.fromkeys("abc", 1.0), stores, config)
    assert found.accepted, found.reason
    fresh = {name: toy.inputs(100, seed)[60:] for seed, name in enumerate("abc")}
    for name, items in fresh.items():
        J = toy.jacobian(base.encoder, items)
        own = J @ toy.flat(taus[name])
        summed = J @ torch.stack([toy.flat(tau) for tau in taus.values()]).sum(0)
        moved = J @ toy.flat(found.tau)
        wrong = (summed - own).square().sum(-1).mean()
        assert (moved - own).square().sum(-1).mean() < 0.6 * wrong


def test_every_task_has_the_same_share_of_the_steps() -> None:
    base = toy.backbone()
    sizes = {"a": 5, "b": 50, "c": 20}
    stores = [
        toy.store(base, name, toy.inputs(rows, seed))
        for seed, (name, rows) in enumerate(sizes.items())
    ]
    numbers = base.inputs
    assert isinstance(numbers, toy.Numbers)
    tau = toy.random_tau(base.encoder)
    config = RefreshConfig(seed=0, steps=6, batch=4, other_batch=1)
    refresh_composition(
        LinearizedEncoder(base.encoder), base, {"a": tau}, {"a": 1.0}, stores, config
    )
    for store in stores:
        rows = {tuple(item.tolist()) for item in store.items}
        assert sum(tuple(item.tolist()) in rows for item in numbers.learnt) == 10


def test_what_is_accepted() -> None:
    config = RefreshConfig(seed=0, most_left=0.8, most_change=0.2)
    before = {"a": 1.0, "b": 0.5}
    assert judge_composition(before, {"a": 0.2, "b": 0.5}, config)[0]
    refused, reason = judge_composition(before, {"a": 0.9, "b": 0.5}, config)
    assert not refused
    assert "less than 20%" in reason
    refused, reason = judge_composition(before, {"a": 0.1, "b": 0.75}, config)
    assert not refused
    assert "on b" in reason
    assert not judge_composition({"a": 0.0}, {"a": 0.0}, config)[0]


def test_vectors_without_samples_and_stores_too_small_are_refused() -> None:
    base = toy.backbone()
    tau, module = toy.random_tau(base.encoder), LinearizedEncoder(base.encoder)
    store = toy.store(base, "a", toy.inputs(5, 1))
    config = RefreshConfig(seed=0, steps=1)
    with pytest.raises(EmptySplit, match="'b'"):
        refresh_composition(module, base, {"b": tau}, {"b": 1.0}, [store], config)
    small = replace(store, items=store.items[:1])
    with pytest.raises(EmptySplit, match="1 rows"):
        refresh_composition(module, base, {"a": tau}, {"a": 1.0}, [small], config)
