"""Calibration of a softmax: the temperature that fits labelled rows, and the calibration error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

GOLDEN = (math.sqrt(5) - 1) / 2
LOWEST, HIGHEST = 1e-3, 1e4  # inverse temperatures: 1 for a posterior, about 20 for one-hot targets
BINS = 15


def balanced_weights(counts: Iterable[int]) -> Tensor:
    """Row weights of several tasks, one task after the other, that give every task the same total
    weight."""
    return torch.cat([torch.full((count,), 1 / count) for count in counts])


class TemperatureFit(NamedTuple):
    """`inverse_temperature` b, and the cross-entropy of softmax(b s) there."""

    inverse_temperature: float
    loss: float


def fit_temperature(
    scores_NC: Tensor,
    labels_N: Tensor,
    weight_N: Tensor | None = None,
    smoothing: float = 0.0,
    others_N: Tensor | None = None,
) -> TemperatureFit:
    """The b >= 0 with the least cross-entropy of softmax(b s), by golden section on log b.

    The loss is convex in b, so it has one minimum in log b. `smoothing` is the part of each label
    that is spread over all classes: without it, the minimum of rows that are all answered right is
    at HIGHEST. `weight_N`: weights of the rows, equal by default. `others_N`: scores of one more
    class, which b does not multiply.
    """
    scores_NC = scores_NC.double()
    weight_N = torch.ones(len(labels_N)) if weight_N is None else weight_N
    mass_N = weight_N.double() / weight_N.double().sum()

    def loss(log_b: float) -> float:
        scores = math.exp(log_b) * scores_NC
        if others_N is not None:
            scores = torch.cat([scores, others_N.double().unsqueeze(-1)], -1)
        loss_N = cross_entropy(scores, labels_N, label_smoothing=smoothing, reduction="none")
        return (mass_N @ loss_N).item()

    log_b = _golden_section(loss, math.log(LOWEST), math.log(HIGHEST))
    return TemperatureFit(math.exp(log_b), loss(log_b))


def _golden_section(value: Callable[[float], float], low: float, high: float) -> float:
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = value(left), value(right)
    while high - low > 1e-4:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = value(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = value(right)
    return (low + high) / 2


def calibration_error(confidence_N: Tensor, right_N: Tensor, weight_N: Tensor) -> float:
    """Expected |confidence - accuracy| over 15 bins of equal mass (arXiv 1909.10155).

    The mass of a row is its weight; weights of 1 / n_t make tasks equal.
    """
    order_N = confidence_N.argsort(stable=True)
    mass_N = weight_N.double()[order_N] / weight_N.double().sum()
    middle_N = mass_N.cumsum(0) - mass_N / 2
    bin_N = (middle_N * BINS).long().clamp_max(BINS - 1)
    gap_N = mass_N * (confidence_N.double() - right_N.double())[order_N]
    return torch.zeros(BINS, dtype=torch.float64).index_add_(0, bin_N, gap_N).abs().sum().item()
