"""One common coefficient for a whole composition, chosen on validation rows (arXiv 2212.04089).

alpha * sum_t c_t tau_t: signs and relative sizes of the recipe stay as they are. For linearized
vectors `metrics.best_coefficient` does the same from cached tangents.
"""

from __future__ import annotations

from collections.abc import Callable

from tacl import params
from tacl.metrics import COEFFICIENTS
from tacl.params import Params


def best_scaled(tau: Params, score: Callable[[Params], float]) -> tuple[float, Params]:
    """The best of 21 points on [0, 1], and alpha * tau; of equal ones the smallest.

    `score` evaluates a composed tau on validation data, for instance its mean accuracy.
    """
    best = max(COEFFICIENTS, key=lambda alpha: score(params.scale(alpha, tau)))
    return best, params.scale(best, tau)
