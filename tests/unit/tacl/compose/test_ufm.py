"""Adaptation without labels: changes of inputs, trusted rows, pseudo-labels, and what is learnt."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

from tacl.compose import ufm as ufm_module
from tacl.compose.learning import learning_config
from tacl.compose.scaled import ScaledEncoder
from tacl.compose.ufm import trusted, ufm
from tacl.data.augment import DROPOUT, augmented
from tacl.evaluation.metrics import accuracy
from tacl.heads.head import prototype_head
from tacl.vectors.vector import Regime, TaskVector
from tests.support import toy
from tests.unit.tacl.compose.test_learning import World


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(length=st.integers(1, 40), seed=st.integers(0, 1000))
def test_a_text_loses_inner_tokens_only(length: int, seed: int) -> None:
    item = torch.arange(100, 100 + length)
    for strength in ("weak", "strong"):
        changed = augmented(item, strength, generator(seed)).tolist()
        assert changed[0] == 100
        assert changed[-1] == 99 + length
        assert changed == sorted(set(changed) & set(item.tolist()))
        assert length < 3 or len(changed) >= 3


def test_the_share_of_lost_tokens() -> None:
    item = torch.arange(10_000)
    for strength, share in DROPOUT.items():
        changed = augmented(item, strength, generator(0))  # pyright: ignore[reportArgumentType]
        assert 1 - len(changed) / len(item) == pytest.approx(share, rel=0.1)


def test_pictures_are_moved_weakly_and_more_than_moved_strongly() -> None:
    item = torch.randint(0, 256, (3, 32, 32), dtype=torch.uint8, generator=generator(0))
    weak = [augmented(item, "weak", generator(seed)) for seed in range(8)]
    strong = [augmented(item, "strong", generator(seed)) for seed in range(8)]
    for changed in (*weak, *strong):
        assert changed.shape == item.shape
        assert changed.dtype == torch.uint8
    places = range(-2, 3)
    for changed in weak:  # the inside is the picture, moved by at most 2 pixels of 32
        inner = changed[:, 4:-4, 4:-4]
        moved = [item[:, 4 + y : 28 + y, 4 + x : 28 + x] for y in places for x in places]
        assert any(torch.equal(inner, part) for part in moved)
    assert len({changed.numpy().tobytes() for changed in weak}) > 3
    for changed in strong:
        grey = (changed == 127).all(0)
        assert grey.sum() >= 64  # a quarter of the side, squared
    again = augmented(item, "strong", generator(3))
    assert torch.equal(again, strong[3])


def test_trusted_rows_of_each_class() -> None:
    p = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.45, 0.55], [0.7, 0.3]])
    assert trusted(p) == ([0, 4, 1, 3], [0, 0, 1, 1])  # 5 / 2 rows of each
    assert trusted(p, most=1) == ([0, 1], [0, 1])
    rows, labels = trusted(torch.full((2, 5), 0.2))
    assert sorted(labels) == list(range(5))  # fewer rows than classes: one of each all the same
    assert set(rows) <= {0, 1}


def test_the_threshold_rises_and_the_rest_has_no_label(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World("linearized")
    surest: list[float] = []
    thresholds: list[float] = []
    kept: list[list[int]] = []
    changed: list[list[int]] = []
    real, real_logits = ufm_module.surer, ufm_module._logits
    real_changed = ufm_module._changed

    def spied_logits(module, backbone, head, items):
        with torch.no_grad():
            features, tangent = module(torch.stack(items))
        found = real_logits(module, backbone, head, items)
        torch.testing.assert_close(found, world.head.logits(features + tangent))
        assert len(items) == config.batch - config.batch // 4
        return found

    def spied(logits, threshold):
        rows, labels = real(logits, threshold)
        share, answer = logits.softmax(-1).max(-1)
        assert rows == [row for row in range(len(share)) if share[row] >= threshold]
        assert labels == answer[rows].tolist()
        surest.extend(share[rows].tolist())
        thresholds.append(threshold)
        kept.append(rows)
        return rows, labels

    def spied_changed(items, rows, strength, seed, step):
        changed.append(list(rows))
        return real_changed(items, rows, strength, seed, step)

    monkeypatch.setattr(ufm_module, "_logits", spied_logits)
    monkeypatch.setattr(ufm_module, "surer", spied)
    monkeypatch.setattr(ufm_module, "_changed", spied_changed)
    monkeypatch.setattr(ufm_module, "augmented", lambda item, strength, random: item)
    config = learning_config("test-time", 100, seed=0, steps=12)
    ufm(world.module(), world.base, world.head, world.items[:100], config)
    assert thresholds == pytest.approx([0.9 + 0.1 * step / 11 for step in range(12)])
    for rest, strong, places in zip(changed[::3], changed[2::3], kept, strict=True):
        assert strong == [rest[place] for place in places]
    assert 0.9 <= min(surest) < 0.95


@pytest.mark.parametrize("regime", ["linearized", "ordinary"])
def test_rows_are_trusted_by_zero_shot_score_wherever_coefficients_start(
    regime: Regime, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, seen = World(regime), []
    real = ufm_module.trusted
    monkeypatch.setattr(ufm_module, "trusted", lambda p: seen.append(p) or real(p))
    monkeypatch.setattr(ufm_module, "augmented", lambda item, strength, random: item)
    config = learning_config("test-time", 40, seed=0, steps=1)
    module = world.module(start=[1.0] * len(world.vectors))
    ufm(module, world.base, world.head, world.items[:40], config)
    x_ND = torch.stack(world.items[:40])
    with torch.no_grad():
        expected = world.head.logits(world.base.encoder(x_ND)).softmax(-1)
    assert not torch.allclose(world.logits(module, x_ND).softmax(-1), expected, atol=0.01)
    torch.testing.assert_close(seen, [expected])


def jittered(item: Tensor, strength: str, random: torch.Generator) -> Tensor:
    size = {"weak": 0.02, "strong": 0.1}[strength]
    return item + size * torch.randn(item.shape, generator=random)


def gain(seed: int) -> float:
    """Of accuracy on rows not adapted to; three classes in clusters, and a head that is rough."""
    base, random = toy.backbone(torch.float32), generator(seed)
    vectors = [
        TaskVector.of_params(
            f"task{t}", base.digest, "linearized", toy.random_tau(base.encoder, 0.15, seed=t)
        )
        for t in range(4)
    ]
    centres = 1.5 * torch.randn(3, toy.INPUTS, generator=random)
    labels = torch.arange(600) % 3
    x = centres[labels] + 0.5 * torch.randn(600, toy.INPUTS, generator=random)
    with torch.no_grad():
        features = base.encoder(x)
    exact = prototype_head(features - features.mean(0), labels, tuple("abc"))
    noise = 0.5 * torch.randn(exact.weight_CD.shape, generator=random)
    head = replace(exact, weight_CD=normalize(exact.weight_CD + noise, dim=-1))
    module = ScaledEncoder(base, vectors)

    def accuracy_now() -> float:
        with torch.no_grad():
            features, tangent = module(x[300:])
        return accuracy(head.logits(features + tangent), labels[300:])

    before = accuracy_now()
    config = learning_config("test-time", 300, seed=0, steps=60)
    ufm(module, base, head, list(x[:300]), config)
    return accuracy_now() - before


def test_accuracy_rises_without_a_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ufm_module, "augmented", jittered)
    gains = [gain(seed) for seed in range(2)]
    assert min(gains) > 0.02, gains
