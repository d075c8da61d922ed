"""How much each vector changes other tasks' features and answers, and when to warn.

tau_jp(s -> t) = mean over x in D_t of |J(x) tau_s|_2 (OpenReview 1VwWi6zbxs). The relative value is
divided by tau_jp(t -> t), the effect of the task's own vector on its own inputs.

Most of such a change affects no answer: it is common to all classes, or outside what the task's
head reads. So warnings are based on the change behind the head of t, that of its logits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # reports are also written where there is no torch
    from torch import Tensor

    from tacl.heads.head import Head

# On validation rows of eight text tasks (linear vectors, two seeds) no threshold is better at
# finding the pairs that cost over 2 points: F1 0.55 at 0.3 and 0.4, 0.52 at 0.2, 0.35 at 0.5. On
# test rows the 29 of 112 ordered pairs at or above 0.4 cost 5.3 points on average, the others 0.7.
# Of the penalised vectors' 112 pairs none reached it, and none cost more than 2.3
# (results/interference-text8.md).
HIGH_CHANGE = 0.4
# Merges are published to break when norms differ by 5 to 7 times; provisionally the lower end.
NORM_MISMATCH = 5.0


@dataclass(frozen=True)
class MeanSize:
    """Mean size of a change of features or logits over `rows` probe rows, with standard error."""

    mean: float
    standard_error: float
    rows: int


def tau_jp(tangent_ND: Tensor) -> MeanSize:
    """tau_jp from J(x) tau on the probe rows. The standard error of a single row is infinite."""
    return _mean_size(tangent_ND)


def logit_change(features_ND: Tensor, tangent_ND: Tensor, head: Head) -> MeanSize:
    """How much J(x) tau changes the logits of rows, in logits; each row's mean is subtracted, as an
    equal change of all classes changes no answer. `features_ND` are those of theta0."""
    change_NC = head.logits(features_ND + tangent_ND) - head.logits(features_ND)
    return _mean_size(change_NC - change_NC.mean(dim=1, keepdim=True))


def _mean_size(moves_ND: Tensor) -> MeanSize:
    if len(moves_ND) == 0:
        raise ValueError("a mean over no rows is undefined")
    sizes_N = moves_ND.double().norm(dim=-1)
    rows = len(sizes_N)
    error = (sizes_N.std() / math.sqrt(rows)).item() if rows > 1 else math.inf
    return MeanSize(sizes_N.mean().item(), error, rows)


@dataclass(frozen=True)
class Relative:
    """A ratio of two measured means, with the standard error that follows from both."""

    value: float
    standard_error: float


def relative(other: MeanSize, own: MeanSize) -> Relative | None:
    """The effect of s on t over that of t's own vector there; None when the latter is zero."""
    if own.mean == 0:
        return None
    value = other.mean / own.mean
    error = math.hypot(other.standard_error, value * own.standard_error) / own.mean
    return Relative(value, error)


@dataclass(frozen=True)
class Matrix:
    """pairs[(s, t)]: tau_jp, or the change of the logits, of the vector of s on the probe rows of
    t. A pair that was not measured is absent."""

    pairs: Mapping[tuple[str, str], MeanSize]

    def raw(self, vector: str, task: str) -> float | None:
        pair = self.pairs.get((vector, task))
        return pair.mean if pair else None

    def relative(self, vector: str, task: str) -> Relative | None:
        """None when the pair, or the task's own value, is not known."""
        other, own = self.pairs.get((vector, task)), self.pairs.get((task, task))
        return relative(other, own) if other and own else None


@dataclass(frozen=True)
class Finding:
    """`kind`: "interference" of vector `first` on task `second`, or "norm" of two vectors."""

    kind: str
    first: str
    second: str
    value: float
    message: str


def report(logits: Matrix, norms: Mapping[str, float] | None = None) -> list[Finding]:
    """Warnings to read before composing these vectors, the worst of each kind first.

    `logits` are changes of logits.
    """
    return [*_interfering(logits), *_mismatched(norms or {})]


def _interfering(logits: Matrix) -> list[Finding]:
    found = []
    for vector, task in logits.pairs:
        ratio = logits.relative(vector, task)
        if vector == task or ratio is None or ratio.value < HIGH_CHANGE:
            continue
        message = (
            f"{vector} changes the answers for {task} by {ratio.value:.2f} ± "
            f"{ratio.standard_error:.2f} of what {task}'s own vector does (warning from "
            f"{HIGH_CHANGE:g}); together they may cost {task} accuracy"
        )
        found.append(Finding("interference", vector, task, ratio.value, message))
    return sorted(found, key=lambda finding: -finding.value)


def _mismatched(norms: Mapping[str, float]) -> list[Finding]:
    found = []
    ordered = sorted(norms, key=lambda name: (-norms[name], name))
    for i, large in enumerate(ordered):
        for small in ordered[i + 1 :]:
            if norms[large] < NORM_MISMATCH * norms[small] or norms[large] == 0:
                continue
            times = norms[large] / norms[small] if norms[small] else math.inf
            message = (
                f"the vector of {large} (norm {norms[large]:.3g}) is {times:.1f} times as long as "
                f"that of {small} ({norms[small]:.3g}; warning from {NORM_MISMATCH:g} times); "
                f"{large} may drown {small}"
            )
            found.append(Finding("norm", large, small, times, message))
    return sorted(found, key=lambda finding: -finding.value)
