"""Learned coefficients: recipes, what is chosen and kept, and that they learn what is there."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, jvp
from torch.nn.functional import normalize
from torch.nn.utils import clip_grad_norm_

from tacl.compose.adamerging import Entropy, adamerging
from tacl.compose.learning import (
    INADMISSIBLE,
    RATES,
    Learned,
    at_random,
    blockwise,
    learn,
    learning_config,
    loss_gradient,
    selected,
    vectorwise,
)
from tacl.compose.negation import unlearning
from tacl.compose.scaled import ScaledEncoder
from tacl.data.batches import Labelled
from tacl.data.splits import batch_rows
from tacl.errors import BadRecipe
from tacl.evaluation.metrics import accuracy
from tacl.heads.head import Head
from tacl.heads.joint import JointHead, joint_data
from tacl.training.config import TrainConfig
from tacl.vectors.params import Params
from tacl.vectors.vector import Regime, TaskVector
from tests.support import toy

POOL = 4
CLASSES = 3
SHOTS = (1, 2, 4, 8, 16)


class World:
    """A pool of vectors, and a task whose labels a hidden composition of them gives."""

    def __init__(self, regime: Regime, seed: int = 0) -> None:
        self.base = toy.backbone(torch.float32)
        self.tau = [toy.random_tau(self.base.encoder, 0.15, seed=t) for t in range(POOL)]
        self.vectors = [
            TaskVector.of_params(f"task{t}", self.base.digest, regime, tau)
            for t, tau in enumerate(self.tau)
        ]
        random = torch.Generator().manual_seed(seed)
        weight_CD = normalize(torch.randn(CLASSES, toy.FEATURES, generator=random), dim=-1)
        self.head = Head(weight_CD, 16.0, tuple("abc"))
        teacher = self.module()
        with torch.no_grad():
            teacher.deviation.copy_(torch.randn(teacher.deviation.shape, generator=random))
        x_ND = torch.randn(600, toy.INPUTS, generator=random)
        self.labels = self.logits(teacher, x_ND).argmax(1)
        self.items = list(x_ND)

    def module(self, **options) -> ScaledEncoder:
        return ScaledEncoder(self.base, self.vectors, **options)

    def logits(self, module: ScaledEncoder, x_ND: Tensor) -> Tensor:
        with torch.no_grad():
            features, tangent = module(x_ND)
        return self.head.logits(features + tangent)

    def rows(self, start: int, count: int) -> Labelled:
        return Labelled(self.items[start : start + count], self.labels[start : start + count])

    def shots(self, count: int, seed: int = 0) -> Labelled:
        chosen = []
        for label in self.labels.unique().tolist():
            found = (self.labels[:300] == label).nonzero().flatten()
            random = torch.Generator().manual_seed(seed)
            chosen += found[torch.randperm(len(found), generator=random)[:count]].tolist()
        return Labelled([self.items[i] for i in chosen], self.labels[chosen])

    def accuracy(self, module: ScaledEncoder) -> float:
        test = self.rows(300, 300)
        return accuracy(self.logits(module, torch.stack(test.items)), test.labels)


# -- against a loop written otherwise


def learned_by_hand(
    world: World,
    data: Labelled,
    losses: Callable[[Tensor, Tensor], Tensor],
    config: TrainConfig,
    start_TB: Tensor,
) -> Tensor:
    """lambda [T, B] of the plain formula: theta0 + sum_t lambda_t tau_t for all blocks at once."""
    encoder = world.base.encoder
    theta0 = {name: value.detach() for name, value in encoder.named_parameters()}
    deviation = torch.zeros(POOL, start_TB.shape[1], requires_grad=True)
    optimizer = torch.optim.AdamW([deviation], weight_decay=config.weight_decay)
    warmup = math.ceil(config.warmup_fraction * config.steps)
    for step in range(config.steps):
        rows = batch_rows(len(data), config.batch, config.seed, step)
        batch = torch.stack([data.items[row] for row in rows])
        lambda_TB = (start_TB + deviation).expand(-1, len(theta0))
        tau = {
            name: sum((lambda_TB[t, b] * world.tau[t][name] for t in range(POOL)), torch.zeros(()))
            for b, name in enumerate(theta0)
        }
        if world.vectors[0].regime == "ordinary":
            moved = {name: theta0[name] + tau[name] for name in theta0}
            features = functional_call(encoder, moved, (batch,))
        else:
            at = lambda theta, batch=batch: functional_call(encoder, theta, (batch,))  # noqa: E731
            features = sum(jvp(at, (theta0,), (tau,)), torch.zeros(()))
        losses(features, data.labels[rows]).mean().backward()
        clip_grad_norm_([deviation], config.clip)
        rise = (step + 1) / warmup
        fall = 0.5 + 0.5 * math.cos(math.pi * (step - warmup) / (config.steps - warmup))
        optimizer.param_groups[0]["lr"] = config.learning_rate * (rise if step < warmup else fall)
        optimizer.step()
        optimizer.zero_grad()
    return start_TB + deviation.detach()


@pytest.mark.parametrize("regime", ["ordinary", "linearized"])
@pytest.mark.parametrize("start", [0.0, 1.0])
def test_atlas_against_a_loop(regime: Regime, start: float) -> None:
    world, config = World(regime), learning_config("few-shot", 24, seed=1, batch=8, steps=12)
    module, data = world.module(start=[start] * POOL), world.rows(0, 24)
    expected = learned_by_hand(
        world, data, world.head.losses, config, torch.full((POOL, len(module.blocks)), start)
    )
    found = learn(module, world.base, world.head, data, config)
    torch.testing.assert_close(found.coefficients[..., 0], expected, rtol=1e-3, atol=1e-4)
    assert (expected - start).abs().max() > 0.1


def test_adamerging_against_a_loop() -> None:
    """Rows of two tasks; the entropy of each among the classes of its own."""
    world = World("ordinary")
    heads = [world.head, Head(world.head.weight_CD[:2].flip(1), 16.0, ("x", "y"))]
    data = Labelled(world.items[:24], torch.tensor([0] * 12 + [1] * 12))

    def entropies(features: Tensor, tasks: Tensor) -> Tensor:
        shares = [
            heads[t].logits(f[None])[0].softmax(0)
            for f, t in zip(features, tasks.tolist(), strict=True)
        ]
        return torch.stack([-(p * p.log()).sum() for p in shares])

    inputs, two = [world.items[:12], world.items[12:24], [], []], [*heads, *heads]
    module, found = adamerging(world.base, world.vectors, inputs, two, steps=8, batch=3)
    config = TrainConfig(8, 1 / 8, 0.0, 0, (), batch=3 * 2, weight_decay=0.0, penalty="none")
    size = (POOL, len(module.blocks))
    expected = learned_by_hand(world, data, entropies, config, torch.full(size, 0.3))
    torch.testing.assert_close(found.coefficients[..., 0], expected, rtol=1e-3, atol=1e-4)
    assert (expected - 0.3).abs().max() > 0.1


# -- what is learned


@pytest.mark.train
@pytest.mark.parametrize("regime", ["ordinary", "linearized"])
def test_few_shot_accuracy_rises_with_shots_and_beats_zero_shot(regime: Regime) -> None:
    world = World(regime)
    zero_shot, found = world.accuracy(world.module()), []
    for shots in SHOTS:
        accuracies = []
        for seed in range(2):
            module, data = world.module(), world.shots(shots, seed)
            learn(
                module, world.base, world.head, data, learning_config("few-shot", len(data), seed)
            )
            accuracies.append(world.accuracy(module))
        found.append(sum(accuracies) / len(accuracies))
    assert all(value > zero_shot for value in found)
    assert all(more > less - 0.02 for less, more in pairwise(found))
    assert found[-1] > found[0] + 0.05


# -- recipes


@pytest.mark.parametrize("use", list(RATES))
@pytest.mark.parametrize("rows", [3, 48, 800, 40_000])
def test_coefficients_can_always_arrive(use, rows: int) -> None:
    config = learning_config(use, rows, seed=0)
    assert config.steps * config.learning_rate >= 3
    assert config.learning_rate >= RATES[use]
    assert learning_config(use, rows, seed=0, steps=30).steps == 30


def test_few_shots_are_repeated() -> None:
    assert learning_config("few-shot", 4, seed=0).steps == 10 * 10
    assert learning_config("few-shot", 1600, seed=0).steps == 10 * 100
    assert learning_config("addition", 1600, seed=0).steps == 20 * 100


# -- which step, which blocks


@pytest.fixture
def world() -> World:
    return World("linearized")


CONFIG = learning_config("few-shot", 48, seed=0, steps=20)


def learned(world: World, module: ScaledEncoder, **options) -> Learned:
    return learn(module, world.base, world.head, world.shots(8), CONFIG, **options)


def test_the_best_step_is_kept(world: World) -> None:
    seen: list[Params] = []

    def score(module: ScaledEncoder) -> float:
        seen.append(module.tau_dict())
        return [0.3, 0.1, 0.5, 0.2][min(len(seen) - 1, 3)]

    module = world.module()
    found = learned(world, module, score=score)
    assert (found.score, found.step) == (0.5, 1)
    assert len(seen) == 1 + CONFIG.steps
    assert not any(value.any() for value in seen[0].values())  # the start is a candidate
    for name, value in module.tau_dict().items():
        assert torch.equal(value, seen[2][name])
    torch.testing.assert_close(found.coefficients, module.coefficients().detach())


def test_learning_ends_where_it_is_not_allowed_to_go(world: World) -> None:
    scores = iter([0.1, 0.2, 0.3, INADMISSIBLE])
    found = learned(world, world.module(), score=lambda module: next(scores))
    assert (found.score, found.step, len(found.losses)) == (0.3, 1, 3)


def test_the_gradient_of_selection_is_that_of_the_mean_loss(world: World) -> None:
    """Central differences, coefficient by coefficient."""
    module, data = world.module(start=[0.5, 0.0, 0.0, -0.5]), world.shots(4)
    found = loss_gradient(module, world.base, world.head, data, batch=5)

    def loss(t: int, b: int, step: float) -> float:
        with torch.no_grad():
            module.deviation.zero_()
            module.deviation[t, b, 0] = step
            features, tangent = module(torch.stack(data.items))
        return world.head.losses(features + tangent, data.labels).double().mean().item()

    for t, b in ((0, 0), (1, 2), (3, 5)):
        slope = (loss(t, b, 1e-2) - loss(t, b, -1e-2)) / 2e-2
        assert found[t, b, 0].item() == pytest.approx(slope, rel=0.05, abs=1e-3)


def test_selections() -> None:
    gradient = torch.tensor([[[1.0], [-9.0]], [[-3.0], [0.5]], [[2.0], [4.0]]])
    assert blockwise(gradient, 1).tolist() == [[0, 1], [1, 0], [0, 0]]
    assert blockwise(gradient, 2).tolist() == [[0, 1], [1, 0], [1, 1]]
    assert vectorwise(gradient, 1).tolist() == [[1, 1], [0, 0], [0, 0]]
    assert vectorwise(gradient, 2).tolist() == [[1, 1], [0, 0], [1, 1]]
    some = at_random(5, 7, 2, seed=1)
    assert some.sum(0).tolist() == [2] * 7
    assert torch.equal(some, at_random(5, 7, 2, seed=1))
    assert not torch.equal(some, at_random(5, 7, 2, seed=2))
    assert len({tuple(column) for column in some.T.tolist()}) > 1


def test_selection_by_name(world: World) -> None:
    module, data = world.module(), world.shots(4)
    places = (module, world.base, world.head, data)
    gradient = loss_gradient(*places)
    assert torch.equal(selected("blockwise:2", *places), blockwise(gradient, 2))
    assert torch.equal(selected("whole:1", *places), vectorwise(gradient, 1))
    assert torch.equal(selected("random:3", *places, seed=5), at_random(POOL, 6, 3, seed=5))
    for wrong in ("blockwise", "blockwise:0", "whole:9", "best:1", "random:-1"):
        with pytest.raises(BadRecipe, match=wrong):
            selected(wrong, *places)


def test_features_are_those_of_the_forward_pass(world: World) -> None:
    module = world.module(start=[1.0, -0.5, 0.0, 2.0])
    with torch.no_grad():
        features, tangent = module(torch.stack(world.items[:7]))
    (found,) = module.features(world.base, [world.items[:7]], batch=3)
    torch.testing.assert_close(found, features + tangent)


# -- negation and AdaMerging


def test_negation_unlearns_the_target_and_keeps_the_control(world: World) -> None:
    target, control = world.rows(0, 60), world.rows(60, 60)
    other = Head(world.head.weight_CD.roll(1, 1), 16.0, tuple("xyz"))
    with torch.no_grad():
        features = world.base.encoder(torch.stack(control.items))
    control = replace(control, labels=other.logits(features).argmax(1))
    heads = [world.head, other]

    def scores(module: ScaledEncoder) -> tuple[float, float]:
        with torch.no_grad():
            features, tangent = module(torch.stack([*target.items, *control.items]))
        moved = features + tangent
        return (
            accuracy(world.head.logits(moved[:60]), target.labels),
            accuracy(other.logits(moved[60:]), control.labels),
        )

    module = world.module()
    before = scores(module)

    rows = {"target": (world.head, target), "control": (other, control)}
    score = unlearning(module, world.base, rows, ["target"])
    assert score(module) == pytest.approx(-before[0])
    learned = learn(
        module,
        world.base,
        JointHead.of(heads, [-1.0, 1.0]),
        joint_data([target, control], heads),
        learning_config("negation", 120, seed=0, steps=60),
        score=score,
    )
    after = scores(module)
    assert after[0] < before[0] - 0.05
    assert after[1] >= 0.95 * before[1]
    assert learned.score == pytest.approx(-after[0])

    shares = []  # against an explicit loop, at coefficients that get wilder
    for size in range(0, 60, 5):
        with torch.no_grad():
            module.deviation.fill_(float(-size))
        target_now, control_now = scores(module)
        found = score(module)
        shares.append(found)
        if control_now >= 0.95 * before[1]:
            assert found == pytest.approx(-target_now)
        else:
            assert found == INADMISSIBLE
    assert INADMISSIBLE in shares
    assert shares[0] != INADMISSIBLE


def test_entropy_by_hand(world: World) -> None:
    other = Head(world.head.weight_CD[:2].flip(1), 16.0, ("x", "y"))
    features = torch.randn(6, toy.FEATURES, generator=torch.Generator().manual_seed(0))
    tasks = torch.tensor([0, 1, 1, 0, 0, 1])
    expected = []
    for feature, task in zip(features, tasks.tolist(), strict=True):
        p = (world.head, other)[task].logits(feature[None])[0].softmax(0).tolist()
        expected.append(-sum(share * math.log(share) for share in p))
    features.requires_grad_()
    found = Entropy.of([world.head, other]).losses(features, tasks)
    assert found.tolist() == pytest.approx(expected, abs=1e-5)
    found.sum().backward()
    assert features.grad is not None
    assert features.grad.isfinite().all()


def test_adamerging_becomes_sure_of_itself(world: World) -> None:
    inputs = [world.items[100 * t : 100 * t + 50] for t in range(POOL)]
    module, found = adamerging(
        world.base,
        world.vectors,
        inputs,
        [world.head] * POOL,
        steps=60,
    )
    assert found.coefficients.shape == (POOL, len(module.blocks), 1)
    moved = (found.coefficients - 0.3).abs()
    assert 0.05 < moved.max() < 1  # from 0.3, where all of them start
    assert sum(found.losses[-10:]) < 0.9 * sum(found.losses[:10])


def test_adamerging_passes_few_rows_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    passed, forward = list[int](), ScaledEncoder.forward

    def counted(self: ScaledEncoder, batch: Tensor) -> tuple[Tensor, Tensor]:
        passed.append(len(batch))
        return forward(self, batch)

    monkeypatch.setattr(ScaledEncoder, "forward", counted)
    inputs = [world.items[start : start + 12] for start in range(0, 12 * POOL, 12)]
    heads = [world.head] * POOL
    monkeypatch.setattr("tacl.compose.adamerging.AT_ONCE", 5)
    adamerging(world.base, world.vectors, inputs, heads, steps=1, batch=3)
    assert passed == [4] * 3
