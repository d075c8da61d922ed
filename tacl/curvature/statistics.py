"""Factors and diagonals of a task's curvature: their penalty, their sum over tasks, their file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacl.curvature.calls import joined
from tacl.errors import BaseMismatch, EmptySplit
from tacl.vectors import Params, files

FORMAT = 2


@dataclass(frozen=True, eq=False)
class KroneckerFactors:
    """Factors of the blocks `weight` and `bias`, if any: the last row and column of A belong to
    the bias."""

    weight: str
    bias: str | None
    a_II: Tensor
    b_OO: Tensor

    def penalty(self, tau: Mapping[str, Tensor]) -> Tensor:
        """tr(B dW A dW'), differentiable in tau; the product for its gradient 2 B dW A is shared
        with the value."""
        weight_OI = joined(tau, self.weight, self.bias)
        fixed_OI = weight_OI.detach()
        half_OI = self.b_OO @ fixed_OI @ self.a_II
        return (half_OI * fixed_OI).sum() + 2 * (half_OI * (weight_OI - fixed_OI)).sum()


@dataclass(frozen=True, eq=False)
class Statistics:
    """Curvature statistics of one task, or of several merged.

    `feature_norm`: mean |f(x; theta0)| over the rows. `coherence`: ratio of the layers' joint
    effect to that of each alone, which is all that factors and diagonals measure.
    """

    base: str
    rows: int
    feature_norm: float
    coherence: float
    layers: tuple[KroneckerFactors, ...]
    diagonal: Params

    def penalty(self, tau: Mapping[str, Tensor]) -> Tensor:
        """About E |J(x) tau|^2 / |f|^2, like `relative_tau_jp` with a squared norm: a scalar."""
        terms = [layer.penalty(tau) for layer in self.layers]
        terms += [(value * tau[name].square()).sum() for name, value in self.diagonal.items()]
        return self.scale * torch.stack(terms).sum()

    @property
    def scale(self) -> float:
        """Factor from the layers' curvature of the features to the relative size of a change."""
        return self.coherence / self.feature_norm**2

    def to(self, device: torch.device | str) -> Statistics:
        layers = tuple(
            KroneckerFactors(one.weight, one.bias, one.a_II.to(device), one.b_OO.to(device))
            for one in self.layers
        )
        diagonal = {name: value.to(device) for name, value in self.diagonal.items()}
        return replace(self, layers=layers, diagonal=diagonal)

    def save(self, path: Path) -> None:
        """Writes one safetensors file; equal statistics give equal bytes."""
        tensors = {f"diagonal:{name}": value for name, value in self.diagonal.items()}
        for one in self.layers:
            tensors |= {f"a:{one.weight}": one.a_II, f"b:{one.weight}": one.b_OO}
        head = {
            "format": FORMAT,
            "base": self.base,
            "rows": self.rows,
            "feature_norm": self.feature_norm,
            "coherence": self.coherence,
            "bias": {one.weight: one.bias for one in self.layers},
        }
        files.write(path, head, tensors)

    @staticmethod
    def load(path: Path) -> Statistics:
        """Raises CorruptBlob if the file is truncated, foreign, or holds invalid statistics."""
        return files.read(path, "does not hold complete statistics", _assembled)[0]


def _assembled(head: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Statistics:
    if head["format"] not in (1, FORMAT):
        raise ValueError(f"format {head['format']}; this version reads 1 to {FORMAT}")
    if not all(value.isfinite().all() for value in tensors.values()):
        raise ValueError("a value is not finite")
    layers = tuple(
        KroneckerFactors(weight, bias, tensors[f"a:{weight}"], tensors[f"b:{weight}"])
        for weight, bias in head["bias"].items()
    )
    diagonal = {
        name.removeprefix("diagonal:"): value
        for name, value in tensors.items()
        if name.startswith("diagonal:")
    }
    coherence = head["coherence"] if head["format"] > 1 else 1.0  # format 1 has none
    facts = (head["base"], head["rows"], head["feature_norm"], coherence)
    return Statistics(*facts, layers, diagonal)


def merged(statistics: Sequence[Statistics]) -> Statistics:
    """One pair of factors for all tasks, weighted equally: the means of A and of B times `scale`.

    Raises BaseMismatch, and EmptySplit if there are no statistics.
    """
    if not statistics:
        raise EmptySplit("a curvature penalty needs the statistics of one other task at least")
    first = statistics[0]
    foreign = next((one.base for one in statistics if one.base != first.base), None)
    if foreign is not None:
        raise BaseMismatch(f"statistics of the bases {first.base[:12]} and {foreign[:12]}")

    def mean(values: Iterable[Tensor]) -> Tensor:
        return sum(values, torch.zeros(())) / len(statistics)

    # By name: the order in a file differs from that in the encoder.
    by_name = [{layer.weight: layer for layer in one.layers} for one in statistics]
    if any(layers.keys() != by_name[0].keys() for layers in by_name):
        raise BaseMismatch("statistics of different layers; measure them again with one base model")
    pairs = list(zip(statistics, by_name, strict=True))
    layers = [
        KroneckerFactors(
            layer.weight,
            layer.bias,
            mean(of[layer.weight].a_II for _, of in pairs),
            mean(one.scale * of[layer.weight].b_OO for one, of in pairs),
        )
        for layer in first.layers
    ]
    diagonal = {n: mean(one.scale * one.diagonal[n] for one in statistics) for n in first.diagonal}
    rows = sum(one.rows for one in statistics)
    return Statistics(first.base, rows, 1.0, 1.0, tuple(layers), diagonal)
