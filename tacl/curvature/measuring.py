"""Measures the statistics by a forward and a backward pass for each of a few unlabelled rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tacl.backbone import Backbone, Item
from tacl.curvature.calls import LayerCall, LayerRecorder
from tacl.curvature.statistics import KroneckerFactors, Statistics
from tacl.data.splits import sample_rows
from tacl.dual.encode import encode
from tacl.errors import EmptySplit
from tacl.models.frozen import require_eval, trainable_blocks
from tacl.models.linearized import LinearizedEncoder
from tacl.vectors.params import Params, norm, scale

ROWS = 128

Directions = Callable[[int, int], Tensor]  # (row, D) -> [M, D]: v of the passes over a row


def measure(
    backbone: Backbone,
    items: Sequence[Item],
    trainable: Sequence[str] | None = None,
    *,
    rows: int = ROWS,
    seed: int = 0,
    directions: Directions | None = None,
) -> Statistics:
    """Statistics of unlabelled inputs of one task: a forward and a backward pass for each row.

    Rows pass one by one, as the diagonal needs the square of each row's gradient; then one tangent
    of each row is computed for the coherence. `directions` gives the v of a row; by default one,
    standard normal by `seed`. Raises EmptySplit if there is no item.
    """
    require_eval(backbone.encoder)
    if not items:
        raise EmptySplit("statistics of no rows; give at least one input")
    blocks = trainable_blocks(backbone.encoder, trainable or backbone.trainable)
    chosen = [items[row] for row in sample_rows(range(len(items)), rows, seed)]
    directions = directions or (lambda row, size: _normal(seed, row, size))
    sums = _Sums(backbone, blocks)
    for row, item in enumerate(chosen):
        sums.add(item, lambda size, row=row: directions(row, size))
    found = sums.statistics(len(chosen))
    return replace(found, coherence=_coherence(found, backbone, sums.move, chosen))


def _coherence(alone: Statistics, backbone: Backbone, tau: Params, items: Sequence[Item]) -> float:
    """Ratio of the layers' joint effect to that of each alone: E |J tau|^2 on these rows over its
    estimate from factors and diagonals. tau is the sum of the gradients that these were taken from.
    """
    if not (length := norm(tau)):
        return 1.0
    module = LinearizedEncoder(backbone.encoder, list(tau))
    tau = scale(1 / length, tau)
    module.load_tau(tau)
    with torch.no_grad():
        tangent_ND = torch.cat([module(backbone.collate([item]))[1] for item in items])
    together = tangent_ND.square().sum(1).mean() / alone.feature_norm**2
    return float(together / alone.penalty(tau))


def _normal(seed: int, row: int, size: int) -> Tensor:
    return torch.randn(1, size, generator=torch.Generator().manual_seed(seed * 1_000_003 + row))


@dataclass
class _Sums:
    """Running sums over rows; the first row decides which layers have factors."""

    backbone: Backbone
    blocks: list[str]
    a: Params = field(default_factory=dict)
    b: Params = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    biases: dict[str, str | None] = field(default_factory=dict)
    diagonal: Params = field(default_factory=dict)
    feature_norms: list[Tensor] = field(default_factory=list)  # of each row; read at the end
    move: Params = field(default_factory=dict)  # the gradients of all rows, summed

    def __post_init__(self) -> None:
        parameters = dict(self.backbone.encoder.named_parameters())
        self.theta = {n: parameters[n].detach().clone().requires_grad_() for n in self.blocks}

    def add(self, item: Item, directions: Callable[[int], Tensor]) -> None:
        encoder, theta = self.backbone.encoder, self.theta
        with LayerRecorder(theta) as watched:
            features_1D = encode(encoder, theta, self.backbone.collate([item]))
        calls = watched.calls
        if not self.biases:
            self.biases = {call.weight: call.bias for call in calls}
        self.feature_norms.append(features_1D.detach().norm())
        for call in calls:
            a_PI = call.inputs()
            _accumulate(self.a, call.weight, a_PI.T @ a_PI)
            self.positions[call.weight] = self.positions.get(call.weight, 0) + len(a_PI)
        for v_D in directions(features_1D.shape[-1]).to(features_1D):
            # M directions with sum_m E[v v'] = I: one normal one, or all unit ones.
            self._back(features_1D[0] @ v_D, calls)

    def _back(self, value: Tensor, calls: Sequence[LayerCall]) -> None:
        found = torch.autograd.grad(
            value,
            [*(call.output for call in calls), *self.theta.values()],
            retain_graph=True,
            materialize_grads=True,
        )
        for call, g in zip(calls, found, strict=False):
            g_PO = call.rows(g)
            _accumulate(self.b, call.weight, g_PO.T @ g_PO)
        factored = {*self.biases, *(bias for bias in self.biases.values() if bias)}
        for name, g in zip(self.theta, found[len(calls) :], strict=True):
            _accumulate(self.move, name, g)
            if name not in factored:
                _accumulate(self.diagonal, name, g.square())

    def statistics(self, rows: int) -> Statistics:
        layers = tuple(
            KroneckerFactors(
                weight, bias, self.a[weight] / self.positions[weight], self.b[weight] / rows
            )
            for weight, bias in self.biases.items()
        )
        diagonal = {name: value / rows for name, value in self.diagonal.items()}
        feature_norm = sum(torch.stack(self.feature_norms).tolist()) / rows
        return Statistics(self.backbone.digest, rows, feature_norm, 1.0, layers, diagonal)


def _accumulate(sums: Params, name: str, value: Tensor) -> None:
    sums[name] = sums[name] + value if name in sums else value
