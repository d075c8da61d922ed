"""How much each vector moves the features of the other tasks' inputs, and what to warn of.

tau_jp(s -> t) = mean over x in D_t of |J(x) tau_s|_2 (OpenReview 1VwWi6zbxs). Relative: divided
by tau_jp(t -> t), what the task's own vector does on its own inputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # reports are also written where there is no torch
    from torch import Tensor

# Of 56 ordered pairs of linear vectors on eight text tasks, none of the 21 below it cost more than
# 2 points of accuracy and 9 of the 35 from it on did (results/interference-text8.md, one seed).
HIGH_RELATIVE = 0.6
# Merges were published to break at norms 5 to 7 times apart; the lower end, provisionally.
NORM_MISMATCH = 5.0


@dataclass(frozen=True)
class TauJp:
    """A mean over `rows` probe rows, with its standard error; features' units."""

    mean: float
    standard_error: float
    rows: int


def tau_jp(tangent_ND: Tensor) -> TauJp:
    """From J(x) tau on the probe rows. One row has no standard error: infinite."""
    if len(tangent_ND) == 0:
        raise ValueError("tau_jp of no rows is undefined")
    sizes_N = tangent_ND.double().norm(dim=-1)
    rows = len(sizes_N)
    error = (sizes_N.std() / math.sqrt(rows)).item() if rows > 1 else math.inf
    return TauJp(sizes_N.mean().item(), error, rows)


@dataclass(frozen=True)
class Relative:
    """A ratio of two measured means, with the standard error that both give it."""

    value: float
    standard_error: float


def relative(other: TauJp, own: TauJp) -> Relative | None:
    """tau_jp(s -> t) / tau_jp(t -> t); None when the own vector does nothing."""
    if own.mean == 0:
        return None
    value = other.mean / own.mean
    error = math.hypot(other.standard_error, value * own.standard_error) / own.mean
    return Relative(value, error)


@dataclass(frozen=True)
class Matrix:
    """pairs[(s, t)]: the vector of s on the probe of t. A pair that was not measured is absent."""

    pairs: Mapping[tuple[str, str], TauJp]

    @property
    def vectors(self) -> list[str]:
        return list(dict.fromkeys(vector for vector, _ in self.pairs))

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(task for _, task in self.pairs))

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


def report(matrix: Matrix, norms: Mapping[str, float] | None = None) -> list[Finding]:
    """What a person should know before composing these vectors, the worst first of each kind."""
    return [*_interfering(matrix), *_mismatched(norms or {})]


def _interfering(matrix: Matrix) -> list[Finding]:
    found = []
    for vector, task in matrix.pairs:
        ratio = matrix.relative(vector, task)
        if vector == task or ratio is None or ratio.value < HIGH_RELATIVE:
            continue
        message = (
            f"{vector} moves inputs of {task} by {ratio.value:.2f} ± {ratio.standard_error:.2f} "
            f"of what {task}'s own vector does (warning from {HIGH_RELATIVE:g}); "
            f"together they may cost {task} accuracy"
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
