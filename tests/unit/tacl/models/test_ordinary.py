"""Ordinary fine-tuning and joint training by the one loop, against loops written otherwise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from tacl.data.batches import Labelled
from tacl.data.splits import batch_rows
from tacl.errors import BadConfig
from tacl.evaluation.tangents import cached_tangents
from tacl.heads.head import Head, prototype_head
from tacl.heads.joint import JointHead, joint_data
from tacl.models.linearized import LinearizedEncoder
from tacl.models.ordinary import OrdinaryEncoder
from tacl.training.loop import PlainEngine, train
from tacl.vectors.params import Params, digest
from tests.support import toy

CONFIG = replace(toy.CONFIG, penalty="none", steps=10)


def fine_tuned(scene: toy.Scene) -> Params:
    """theta itself is moved by AdamW whose decay, as ours, pulls towards theta0."""
    encoder = scene.backbone.encoder
    theta0 = {name: value.detach() for name, value in encoder.named_parameters()}
    tau = {name: torch.zeros_like(value, requires_grad=True) for name, value in theta0.items()}
    optimizer = torch.optim.AdamW(tau.values(), weight_decay=CONFIG.weight_decay)
    for step in range(CONFIG.steps):
        rows = batch_rows(len(scene.data), CONFIG.batch, CONFIG.seed, step)
        theta = {name: theta0[name] + tau[name] for name in theta0}
        batch = torch.stack([scene.data.items[row] for row in rows])
        logits = scene.head.logits(functional_call(encoder, theta, (batch,)))
        cross_entropy(logits, scene.data.labels[rows]).backward()
        clip_grad_norm_(tau.values(), CONFIG.clip)
        rise = 1.0 if step < 1 else 0.5 + 0.5 * math.cos(math.pi * (step - 1) / (CONFIG.steps - 1))
        optimizer.param_groups[0]["lr"] = CONFIG.learning_rate * rise
        optimizer.step()
        optimizer.zero_grad()
    return {name: value.detach() for name, value in tau.items()}


def test_ordinary_training_is_fine_tuning() -> None:
    scene = toy.scene()
    engine = PlainEngine(OrdinaryEncoder(scene.backbone.encoder), CONFIG)
    theta0 = digest(scene.backbone.encoder.state_dict())
    records = scene.run(engine, CONFIG)
    assert {record.penalty for record in records} == {None}
    tau, expected = engine.module.tau_dict(), fine_tuned(scene)
    for name, value in expected.items():
        torch.testing.assert_close(tau[name], value, rtol=1e-6, atol=1e-9)
    assert digest(scene.backbone.encoder.state_dict()) == theta0
    linear = toy.flat(scene.trained(CONFIG))
    assert (toy.flat(tau) - linear).norm() > 1e-3 * linear.norm()  # another model was trained


def test_ordinary_features_are_those_of_a_moved_copy() -> None:
    base = toy.backbone(torch.float32)
    items, tau = toy.inputs(7, 1, torch.float32), toy.random_tau(base.encoder)
    module = OrdinaryEncoder(base.encoder)
    found = cached_tangents(module, base, items, {"tau": tau}, 3).features_ND
    moved = {name: p + tau[name] for name, p in base.encoder.named_parameters()}
    torch.testing.assert_close(found, functional_call(base.encoder, moved, (torch.stack(items),)))
    assert all(not value.any() for value in module.tau_dict().values())


def test_a_penalty_on_ordinary_fine_tuning_is_refused() -> None:
    scene = toy.scene()
    engine = PlainEngine(OrdinaryEncoder(scene.backbone.encoder), toy.CONFIG)
    with pytest.raises(BadConfig, match="ordinary"):
        scene.run(engine, toy.CONFIG)


# -- joint training


def two_tasks(base: toy.Backbone) -> tuple[list[Labelled], list[Head]]:
    parts, heads = [], []
    for seed, classes in ((0, 2), (1, 3)):
        items = toy.inputs(30, seed)
        x_ND = torch.stack(items)
        labels_N = x_ND[:, :classes].argmax(1)
        labels_N[:classes] = torch.arange(classes)  # every class has a row
        with torch.no_grad():
            heads.append(prototype_head(base.encoder(x_ND), labels_N, list("abc")[:classes]))
        parts.append(Labelled(items, labels_N))
    return parts, heads


def by_hand(features_BD: Tensor, labels: Sequence[int], heads: Sequence[Head]) -> Tensor:
    """Each row with the head of its own task."""
    losses = []
    for feature_D, label in zip(features_BD, labels, strict=True):
        task, own = (0, label) if label < 2 else (1, label - 2)
        losses.append(-heads[task].logits(feature_D[None])[0].log_softmax(0)[own])
    return torch.stack(losses)


def test_each_row_is_judged_among_the_classes_of_its_task() -> None:
    base = toy.backbone()
    parts, heads = two_tasks(base)
    data = joint_data(parts, heads)
    rows = [0, 29, 31, 45, 59]
    features = base.encoder(torch.stack([data.items[row] for row in rows])).detach()
    labels = data.labels[rows]
    expected = by_hand(features, labels.tolist(), heads)
    torch.testing.assert_close(JointHead.of(heads).losses(features, labels), expected)
    signed = JointHead.of(heads, [-1.0, 1.0]).losses(features, labels)
    torch.testing.assert_close(signed, expected * torch.tensor([-1, -1, 1, 1, 1]))


@pytest.mark.parametrize("kind", [LinearizedEncoder, OrdinaryEncoder])
def test_one_vector_learns_all_tasks(kind: type) -> None:
    base = toy.backbone()
    parts, heads = two_tasks(base)
    config = replace(CONFIG, steps=60, batch=12)
    engine = PlainEngine(kind(base.encoder), config)
    train(engine, base, JointHead.of(heads), joint_data(parts, heads), lambda step: (), config)

    def loss(part: Labelled, head: Head) -> float:
        with torch.no_grad():
            features, tangent = engine.module(torch.stack(part.items))
        return head.losses(features + tangent, part.labels).mean().item()

    after = [loss(part, head) for part, head in zip(parts, heads, strict=True)]
    engine.module.load_tau({})
    before = [loss(part, head) for part, head in zip(parts, heads, strict=True)]
    assert all(a < 0.8 * b for a, b in zip(after, before, strict=True))
