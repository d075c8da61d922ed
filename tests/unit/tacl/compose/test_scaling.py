"""Composed blocks and their gradients against the plain formula, and what is kept for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import functional_call, jvp

from tacl.compose.arithmetic import composed
from tacl.compose.scaled import ScaledEncoder, composed_block, random_parts
from tacl.errors import BadConfig, BaseMismatch
from tacl.vectors.blocks import Block, Dense, EightBit, LowRank
from tacl.vectors.params import Params
from tacl.vectors.vector import Regime, TaskVector
from tests.support import toy

HALF = torch.bfloat16


def blocks(seed: int, shape: Sequence[int] = (4, 5)) -> list[Block | None]:
    """One of each kind, and one that is missing."""
    random = torch.Generator().manual_seed(seed)
    a, b, c = (torch.randn(tuple(shape), generator=random) for _ in range(3))
    return [Dense(a), None, EightBit.of(b), LowRank.of(c, 2)]


def plain(start: Tensor, lambda_TK: Tensor, taus: Sequence[Block | None], part: Tensor) -> Tensor:
    """Entry by entry of the formula, by autograd."""
    total = start
    for t, block in enumerate(taus):
        if block is not None:
            for k in range(lambda_TK.shape[1]):
                total = total + lambda_TK[t, k] * (part == k) * block.dense()
    return total


@given(
    seed=st.integers(0, 50),
    parts=st.integers(1, 3),
    zero=st.booleans(),
)
def test_value_and_gradient_are_those_of_the_formula(seed: int, parts: int, zero: bool) -> None:
    random = torch.Generator().manual_seed(seed)
    start, direction = torch.randn(2, 4, 5, generator=random)
    values = torch.zeros(4, parts) if zero else torch.randn(4, parts, generator=random)
    taus, part = blocks(seed), random_parts((4, 5), parts, seed)
    one, two = values.clone().requires_grad_(), values.clone().requires_grad_()
    found = composed_block(start, one, taus, part if parts > 1 else None)
    expected = plain(start, two, taus, part)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    (found * direction).sum().backward()
    (expected * direction).sum().backward()
    assert one.grad is not None
    assert two.grad is not None
    torch.testing.assert_close(one.grad, two.grad, rtol=1e-4, atol=1e-5)
    assert one.grad[0].abs().max() > 0  # also where every coefficient is zero


def test_parts_are_dealt_at_random_and_the_same_for_a_seed() -> None:
    part = random_parts((50, 40), 4, 1)
    assert torch.equal(part, random_parts((50, 40), 4, 1))
    assert not torch.equal(part, random_parts((50, 40), 4, 2))
    shares = part.flatten().long().bincount(minlength=4) / part.numel()
    torch.testing.assert_close(shares, torch.full((4,), 0.25), atol=0.05, rtol=0)


def saved_bytes(forward: Callable[[], object]) -> int:
    """Of tensors that autograd keeps from the forward to the backward pass."""
    kept: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        forward()
    return sum(kept.values())


def test_nothing_is_kept_beside_the_composed_block() -> None:
    taus: list[Block | None] = [Dense(torch.randn(64, 64)) for _ in range(6)]
    lambda_TK = torch.rand(6, 1, requires_grad=True)
    start = torch.zeros(64, 64)
    assert saved_bytes(lambda: composed_block(start, lambda_TK, taus)) == 0
    assert saved_bytes(lambda: plain(start, lambda_TK, taus, torch.zeros(64, 64))) > 6 * 64 * 64


@pytest.mark.parametrize("regime", ["ordinary", "linearized"])
def test_memory_does_not_grow_with_the_number_of_vectors(regime: Regime) -> None:
    base = toy.backbone(torch.float32)
    batch = torch.stack(toy.inputs(3, 1, torch.float32))

    def kept(count: int) -> int:
        module = ScaledEncoder(base, toy_vectors(base, regime, count))
        return saved_bytes(lambda: module(batch))

    few, many = kept(2), kept(12)
    composed_copy = sum(4 * p.numel() for p in base.encoder.parameters())
    assert (many - few) / 10 < composed_copy / 10  # coefficients alone


# -- the module


def toy_vectors(
    base: toy.Backbone, regime: Regime, count: int = 3, folder: Path | None = None
) -> list[TaskVector]:
    taus = [toy.random_tau(base.encoder, seed=seed) for seed in range(count)]
    vectors = [
        TaskVector.of_params(f"task{t}", base.digest, regime, tau) for t, tau in enumerate(taus)
    ]
    if folder is None:
        return vectors
    for vector in vectors:
        vector.save(folder / vector.task)
    return [TaskVector.load(folder / vector.task) for vector in vectors]


def features(base: toy.Backbone, regime: Regime, tau: Params, batch: Tensor) -> Tensor:
    encoder = base.encoder
    theta0 = {name: value.detach() for name, value in encoder.named_parameters()}

    def at(theta: Params) -> Tensor:
        return functional_call(encoder, theta, (batch,))

    if regime == "ordinary":
        return at({name: theta0[name] + tau[name] for name in theta0})
    found = jvp(at, (theta0,), (tau,))
    return found[0] + found[1]


@pytest.mark.parametrize("regime", ["ordinary", "linearized"])
@pytest.mark.parametrize("parts", [1, 3])
def test_the_model_and_its_gradient(regime: Regime, parts: int, tmp_path: Path) -> None:
    """Against a copy of theta composed by the formula, differentiated by autograd alone."""
    base = toy.backbone(torch.float32)
    vectors = toy_vectors(base, regime, folder=tmp_path)
    module = ScaledEncoder(base, vectors, [0.5, 0.0, -1.0], parts=parts, seed=4)
    assert [name for name, _ in module.named_parameters()] == ["deviation"]
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        module.deviation.copy_(0.3 * torch.randn(module.deviation.shape, generator=random))
    batch = torch.stack(toy.inputs(5, 2, torch.float32))

    deviation = module.deviation.detach().clone().requires_grad_()
    taus = [vector.to_params() for vector in vectors]
    total: Params = {}
    for b, name in enumerate(module.blocks):
        part = module._parts[name]
        part = torch.zeros_like(taus[0][name]) if part is None else part
        terms = []
        for t, start in enumerate([0.5, 0.0, -1.0]):
            for k in range(parts):
                scale = start + deviation[t, b, k]
                terms.append(scale * (part == k) * taus[t][name])
        total[name] = torch.stack(terms).sum(0)
    expected = features(base, regime, total, batch)
    found, tangent = module(batch)
    torch.testing.assert_close(found + tangent, expected, rtol=1e-4, atol=1e-5)
    for name, value in module.tau_dict().items():
        torch.testing.assert_close(value, total[name].detach(), rtol=1e-5, atol=1e-6)

    direction = torch.randn(found.shape, generator=random)
    ((found + tangent) * direction).sum().backward()
    (expected * direction).sum().backward()
    assert module.deviation.grad is not None
    assert deviation.grad is not None
    torch.testing.assert_close(module.deviation.grad, deviation.grad, rtol=1e-3, atol=1e-4)


def test_in_bfloat16_only_the_pass_is() -> None:
    base = toy.backbone(torch.float32)
    vectors = toy_vectors(base, "linearized")
    plain, half = (ScaledEncoder(base, vectors, [0.5, 0.0, -1.0], dtype=d) for d in (None, HALF))
    batch = torch.stack(toy.inputs(5, 2, torch.float32))
    (f, x), (f_half, x_half) = plain(batch), half(batch)
    assert f_half.dtype == x_half.dtype == torch.float32
    assert not torch.equal(x, x_half)
    torch.testing.assert_close(f + x, f_half + x_half, rtol=3e-2, atol=3e-2)
    for name, value in plain.tau_dict().items():
        assert torch.equal(value, half.tau_dict()[name])
    with pytest.raises(BadConfig, match="below the digits of torch.bfloat16"):
        ScaledEncoder(base, toy_vectors(base, "ordinary"), dtype=HALF)


def test_at_its_start_it_is_the_sum_of_the_recipe() -> None:
    base = toy.backbone(torch.float32)
    vectors = toy_vectors(base, "linearized")
    module = ScaledEncoder(base, vectors, [1.0, -1.0, 0.5])
    for name, value in composed(vectors, [1.0, -1.0, 0.5]).items():
        torch.testing.assert_close(module.tau_dict()[name], value)


def test_what_is_not_kept_stays_at_its_start() -> None:
    base = toy.backbone(torch.float32)
    module = ScaledEncoder(base, toy_vectors(base, "ordinary"), [1.0, 0.0, 0.0])
    kept = torch.zeros(3, len(module.blocks))
    kept[2, 1] = 1
    module.keep(kept)
    with torch.no_grad():
        module.deviation.fill_(0.7)
    expected = torch.zeros(3, len(module.blocks), 1)
    expected[0], expected[2, 1] = 1.0, 0.7
    torch.testing.assert_close(module.coefficients(), expected)
    features, _ = module(torch.stack(toy.inputs(3, 1, torch.float32)))
    features.sum().backward()
    gradient = module.deviation.grad
    assert gradient is not None
    assert gradient.nonzero().tolist() == [[2, 1, 0]]


def test_blocks_that_are_not_kept_are_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    base = toy.backbone(torch.float32)
    module = ScaledEncoder(base, toy_vectors(base, "ordinary"), [0.5, 0.0, 0.0])
    kept = torch.zeros(3, len(module.blocks))
    kept[2, 1] = 1
    module.keep(kept)
    read: list[int] = []
    real = Dense.dense
    monkeypatch.setattr(Dense, "dense", lambda block: read.append(id(block)) or real(block))
    features, _ = module(torch.stack(toy.inputs(3, 1, torch.float32)))
    features.sum().backward()
    needed = {id(block) for block in module.vectors[0].blocks.values()}
    needed.add(id(module.vectors[2].blocks[module.blocks[1]]))
    assert set(read) == needed


def test_vectors_of_another_encoder_are_refused() -> None:
    base = toy.backbone(torch.float32)
    foreign = TaskVector.of_params("x", "other", "ordinary", toy.random_tau(base.encoder))
    with pytest.raises(BaseMismatch):
        ScaledEncoder(base, [foreign])
    with pytest.raises(BadConfig, match="300 parts"):
        ScaledEncoder(base, toy_vectors(base, "ordinary"), parts=300)
