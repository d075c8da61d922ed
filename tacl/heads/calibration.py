"""Probabilities from scores: P(task | x) P(class | x, task), each with a fitted temperature."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

GOLDEN = (math.sqrt(5) - 1) / 2
LOWEST, HIGHEST = 1e-3, 1e4  # inverse temperatures: 1 for a posterior, about 20 for one-hot targets
BINS = 15


def inverse_temperature(
    scores_NC: Tensor, labels_N: Tensor, weight_N: Tensor | None = None
) -> float:
    """The b >= 0 with the least cross-entropy of softmax(b s), by golden section on log b.

    The loss is convex in b, so that it has one valley in log b.
    """
    scores_NC = scores_NC.double()
    weight_N = torch.ones(len(labels_N)) if weight_N is None else weight_N
    weight_N = weight_N.double() / weight_N.sum()

    def loss(log_b: float) -> float:
        losses_N = cross_entropy(math.exp(log_b) * scores_NC, labels_N, reduction="none")
        return (weight_N @ losses_N).item()

    return math.exp(_valley(loss, math.log(LOWEST), math.log(HIGHEST)))


def _valley(value: Callable[[float], float], low: float, high: float) -> float:
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


@dataclass(frozen=True)
class Calibration:
    """`within`: inverse temperature of a task's own classes; `between`: that of the tasks.

    A task's score is the highest of its classes'.
    """

    tasks: Mapping[str, int]
    within: Mapping[str, float]
    between: float

    @staticmethod
    def fitted(
        tasks: Mapping[str, int], logits: Mapping[str, Tensor], labels: Mapping[str, Tensor]
    ) -> Calibration:
        """`logits[t]` [N, all classes] of validation rows of task t, `labels[t]` among its own
        classes. Tasks weigh the same. A task without validation rows takes the others' mean."""
        places = {task: place for place, task in enumerate(tasks)}
        columns = _columns(tasks)
        within = {t: inverse_temperature(logits[t][:, columns[t]], labels[t]) for t in logits}
        mean = math.exp(sum(map(math.log, within.values())) / len(within))
        scores_NT = torch.cat([_task_scores(found, columns) for found in logits.values()])
        place_N = torch.cat([torch.full((len(f),), places[t]) for t, f in logits.items()])
        weight_N = torch.cat([torch.full((len(f),), 1 / len(f)) for f in logits.values()])
        between = inverse_temperature(scores_NT, place_N, weight_N)
        return Calibration(dict(tasks), {t: within.get(t, mean) for t in tasks}, between)

    def task_probabilities(self, logits_BC: Tensor) -> Tensor:
        """P(task | x), [B, T] in the order of `tasks`."""
        return (self.between * _task_scores(logits_BC, _columns(self.tasks))).softmax(-1)

    def class_probabilities(self, task: str, logits_BC: Tensor) -> Tensor:
        """P(class | x, task) over the columns of the task, from all columns."""
        return (self.within[task] * logits_BC[:, _columns(self.tasks)[task]]).softmax(-1)

    def probabilities(self, logits_BC: Tensor) -> Tensor:
        """P(task | x) P(class | x, task) over all columns; rows sum to 1."""
        task_BT = self.task_probabilities(logits_BC)
        parts = [
            task_BT[:, [place]] * self.class_probabilities(task, logits_BC)
            for place, task in enumerate(self.tasks)
        ]
        return torch.cat(parts, -1)


def _columns(tasks: Mapping[str, int]) -> dict[str, slice]:
    found, start = {}, 0
    for task, size in tasks.items():
        found[task] = slice(start, start + size)
        start += size
    return found


def _task_scores(logits_BC: Tensor, columns: Mapping[str, slice]) -> Tensor:
    return torch.stack([logits_BC[:, found].amax(-1) for found in columns.values()], -1)


def calibration_error(confidence_N: Tensor, right_N: Tensor, weight_N: Tensor) -> float:
    """Expected |confidence - accuracy| over 15 bins of equal mass (arXiv 1909.10155).

    The mass of a row is its weight: 1 / n_t makes tasks equal.
    """
    order_N = confidence_N.argsort(stable=True)
    mass_N = weight_N.double()[order_N] / weight_N.double().sum()
    middle_N = mass_N.cumsum(0) - mass_N / 2
    bin_N = (middle_N * BINS).long().clamp_max(BINS - 1)
    gap_N = mass_N * (confidence_N.double() - right_N.double())[order_N]
    return torch.zeros(BINS, dtype=torch.float64).index_add_(0, bin_N, gap_N).abs().sum().item()
