"""The probe against its own gradient, its limits, and Newton; neighbours by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from tacl.errors import RunFailed
from tacl.evaluation.metrics import accuracy
from tacl.heads.calibration import fit_temperature
from tacl.heads.head import Head
from tacl.heads.probe import SCALE, Neighbours, chosen_probe, of_length_one, probe_head

D, CLASSES = 6, ("x", "y", "z")


def rows(seed: int, count: int = 30, spread: float = 1.2) -> tuple[Tensor, Tensor]:
    centres = torch.randn(3, D, generator=torch.Generator().manual_seed(99))
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(3).repeat(count)
    return centres[labels] + spread * torch.randn(3 * count, D, generator=random), labels


@pytest.mark.parametrize("weight", [1e-1, 1e-3])
def test_the_loss_has_no_slope_left(weight: float) -> None:
    features, labels = rows(0)
    head = probe_head(*of_length_one((features, labels)), CLASSES, weight)
    w = (head.scale * head.weight_CD).requires_grad_()
    fit = cross_entropy(normalize(features, dim=-1) @ w.T, labels)
    (slope,) = torch.autograd.grad(fit + weight / 2 * w.square().sum(), w)
    assert slope.abs().max() < 1e-4
    torch.testing.assert_close(head.logits(features), normalize(features, dim=-1) @ w.detach().T)


def test_the_start_does_not_decide() -> None:
    unit, labels = of_length_one(rows(0))
    once = probe_head(unit, labels, CLASSES, 1e-2)
    start = replace(probe_head(unit, labels, CLASSES, 1e-4), scale=100.0)
    again = probe_head(unit, labels, CLASSES, 1e-2, start=start)
    torch.testing.assert_close(once.logits(unit), again.logits(unit), rtol=1e-2, atol=1e-2)
    assert once.scale == again.scale == SCALE


def test_a_large_weight_keeps_the_prior() -> None:
    features, labels = of_length_one(rows(0))
    prior = Head(normalize(torch.randn(len(CLASSES), features.shape[1]), dim=-1), 4.0, CLASSES)
    kept = probe_head(features, labels, CLASSES, 1e4, prior=prior)
    torch.testing.assert_close(kept.logits(features), prior.logits(features), rtol=0, atol=1e-2)
    free = probe_head(features, labels, CLASSES, 1e-3, prior=prior)
    assert (free.logits(features) - prior.logits(features)).abs().max() > 1


def test_a_large_weight_knows_nothing() -> None:
    features, labels = of_length_one(rows(0))
    assert probe_head(features, labels, CLASSES, 1e4).logits(features).abs().max() < 1e-3


def test_validation_rows_choose_the_weight() -> None:
    train, validation = of_length_one(rows(0, 8, 2.5)), rows(1, 100, 2.5)
    weights = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
    head, weight = chosen_probe(train, validation, CLASSES, weights=weights)

    def loss(other: float) -> float:
        found = probe_head(*train, CLASSES, other)
        return fit_temperature(found.logits(validation[0]), validation[1]).loss

    place = weights.index(weight)
    assert 0 < place < len(weights) - 1  # an end of the grid would say nothing
    assert loss(weight) <= min(loss(weights[place - 1]), loss(weights[place + 1]))
    assert accuracy(head.logits(validation[0]), validation[1]) > 0.4


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_no_head_comes_of_rows_that_are_not_finite(value: float) -> None:
    train, (features, labels) = of_length_one(rows(0)), rows(1)
    features[7, 2] = value
    with pytest.raises(RunFailed, match="not finite"):
        chosen_probe(train, (features, labels), CLASSES)


def test_votes_by_hand() -> None:
    keys, labels = rows(3, count=4)
    queries, _ = rows(4, count=2)
    found = Neighbours.of(keys, labels, CLASSES, 5).logits(queries).exp()
    for b, query in enumerate(queries):
        close = [float(query @ key / query.norm() / key.norm()) for key in keys]
        nearest = sorted(range(len(keys)), key=lambda i: -close[i])[:5]
        total = sum(math.exp(close[i] / 0.1) for i in nearest)
        for c in range(3):
            share = sum(math.exp(close[i] / 0.1) for i in nearest if labels[i] == c) / total
            assert found[b, c].item() == pytest.approx(share, abs=2e-6)


def test_the_nearest_row_alone_is_what_it_is() -> None:
    keys, labels = rows(3)
    assert accuracy(Neighbours.of(keys, labels, CLASSES, 1).logits(keys), labels) == 1
    assert Neighbours.of(keys[:2], labels[:2], CLASSES, 50).count == 2
