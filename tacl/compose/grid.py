"""One common coefficient for a whole composition, chosen on validation rows (arXiv 2212.04089).

alpha * sum_t c_t tau_t: the recipe's signs and relative sizes are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

from torch import Tensor

from tacl.evaluation.metrics import absolute, accuracy
from tacl.evaluation.tangents import Cached
from tacl.heads.head import Head

COEFFICIENTS = tuple(i / 20 for i in range(21))
POSITIVE = COEFFICIENTS[1:]
KEPT = 0.95  # share of their accuracy that other tasks must keep while some are unlearned

Score = Callable[[float], float]  # of a coefficient, on validation rows


def best(score: Score, points: Sequence[float] = COEFFICIENTS) -> float:
    """The point with the highest score; of equal ones the smallest."""
    return max(points, key=score)


def lowest(
    score: Score, kept: Score, least: float, points: Sequence[float] = COEFFICIENTS
) -> float:
    """The point with the lowest score among those whose `kept` is at least `least`; of equal ones
    the one with the largest `kept`, then the smallest."""
    enough = (c for c in points if kept(c) >= least)
    return min(enough, key=lambda c: (score(c), -kept(c)))


def best_coefficient(
    cached: Mapping[str, Cached],
    labels: Mapping[str, Tensor],
    heads: Mapping[str, Head],
    recipe: Mapping[str, float],
    subtracted: Collection[str] = (),
) -> float:
    """The alpha > 0 with the best mean accuracy over the tasks of `cached`, for linearized vectors.
    With 0 no task would be added, and none could be the answer.

    If tasks are subtracted, the alpha at which their accuracy is lowest among those at which the
    other tasks keep 95 % of their best mean accuracy at any alpha.
    """

    def mean_of(tasks: Collection[str]) -> Score:
        def score(alpha: float) -> float:
            scaled = {vector: alpha * c for vector, c in recipe.items()}
            found = {t: heads[t].logits(cached[t].linearized(scaled)) for t in tasks}
            return absolute({t: accuracy(found[t], labels[t]) for t in tasks})

        return score

    added = cache(mean_of([task for task in cached if task not in subtracted]))
    most = best(added, POSITIVE)
    if not subtracted:
        return most
    return lowest(mean_of(subtracted), added, KEPT * added(most), POSITIVE)
