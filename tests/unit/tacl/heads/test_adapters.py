"""Tip-Adapter and LP++ against loops, autograd and Newton's method."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from tacl.evaluation.metrics import accuracy
from tacl.heads.adapters import LpPlusPlus, TipAdapter
from tacl.heads.head import Head

D, C = 8, 3


def clusters(shots: int, seed: int = 0, spread: float = 0.6) -> tuple[Tensor, Tensor]:
    """Rows around one direction per class; lengths differ, for features are not unit."""
    centres = torch.randn(C, D, generator=torch.Generator().manual_seed(99))
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(C).repeat(shots)
    noise = spread * torch.randn(len(labels), D, generator=random)
    sizes = 0.5 + torch.rand(len(labels), 1, generator=random)
    return sizes * (centres[labels] + noise), labels


@pytest.fixture
def head() -> Head:
    """Knows a little of the classes."""
    centres = torch.randn(C, D, generator=torch.Generator().manual_seed(99))
    wrong = torch.randn(C, D, generator=torch.Generator().manual_seed(5))
    return Head(normalize(0.3 * centres + wrong, dim=-1), 20.0, tuple("abc"))


def test_tip_adapter_by_hand(head: Head) -> None:
    shots, labels = clusters(2)
    adapter = TipAdapter.of(head, shots, labels)
    rows, _ = clusters(1, seed=3)
    found = adapter.logits(rows)
    for b in range(len(rows)):
        unit = rows[b] / rows[b].norm()
        for c in range(C):
            value = 20 * float(unit @ head.weight_CD[c])
            for shot, label in zip(shots, labels, strict=True):
                close = math.exp(-adapter.beta * (1 - float(unit @ shot / shot.norm())))
                value += adapter.alpha * 20 / 100 * close * (label == c)
            assert found[b, c].item() == pytest.approx(float(value), rel=1e-4, abs=1e-4)


def test_one_shot_takes_the_published_values_and_more_are_left_out_one_by_one(head: Head) -> None:
    one = TipAdapter.of(head, *clusters(1))
    assert (one.alpha, one.beta) == (1.0, 5.5)
    shots, labels = clusters(4)
    chosen = TipAdapter.of(head, shots, labels)

    def left_out(alpha: float, beta: float) -> float:
        """Each shot judged by an adapter that never saw it."""
        losses = []
        for i in range(len(labels)):
            rest = [j for j in range(len(labels)) if j != i]
            values = torch.eye(C)[labels[rest]]
            keys = normalize(shots[rest], dim=-1)
            adapter = TipAdapter(head, keys, values, alpha, beta)
            losses.append(cross_entropy(adapter.logits(shots[i : i + 1]), labels[i : i + 1]))
        return torch.stack(losses).mean().item()

    best = left_out(chosen.alpha, chosen.beta)
    for alpha in (0.0, 1.0, 4.0):
        for beta in (1.0, 5.5):
            assert best <= left_out(alpha, beta) + 1e-6


def loss_of(probe: LpPlusPlus, rows: Tensor, labels: Tensor) -> float:
    return cross_entropy(probe.logits(rows), labels).item()


def test_lp_plus_plus_starts_at_zero_shot_and_only_falls(head: Head) -> None:
    rows, labels = clusters(6, spread=1.5)
    start = LpPlusPlus.of(head, rows, labels, steps=0)
    torch.testing.assert_close(start.logits(rows), head.logits(rows))
    losses = [loss_of(LpPlusPlus.of(head, rows, labels, n), rows, labels) for n in range(0, 40, 3)]
    assert all(after < before for before, after in pairwise(losses))


def test_lp_plus_plus_reaches_the_minimum_of_its_convex_loss(head: Head) -> None:
    """L-BFGS on (w, alpha), on rows that cannot be separated."""
    rows, labels = clusters(12, spread=2.5)
    unit = normalize(rows, dim=-1)
    w = torch.zeros(C, D, requires_grad=True)
    alpha = torch.full((C,), 20.0, requires_grad=True)
    optimizer = torch.optim.LBFGS([w, alpha], max_iter=500, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(unit @ (w + alpha[:, None] * head.weight_CD).T, labels)
        loss.backward()
        return loss

    least = optimizer.step(closure)
    least = closure().item()
    found = loss_of(LpPlusPlus.of(head, rows, labels, steps=3000), rows, labels)
    assert found == pytest.approx(least, rel=0.02)


@pytest.mark.parametrize("kind", [TipAdapter, LpPlusPlus])
def test_few_shots_help(head: Head, kind: type[TipAdapter] | type[LpPlusPlus]) -> None:
    rows, labels = clusters(100, seed=7)
    zero_shot = accuracy(head.logits(rows), labels)
    found = []
    for shots in (1, 4, 16):
        values = [kind.of(head, *clusters(shots, seed=s)).logits(rows) for s in range(3)]
        found.append(sum(accuracy(v, labels) for v in values) / 3)
    assert min(found) > zero_shot
    assert found[-1] >= found[0]
