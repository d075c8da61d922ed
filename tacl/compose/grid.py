"""One common coefficient for a whole composition, chosen on validation rows (arXiv 2212.04089).

alpha * sum_t c_t tau_t: signs and relative sizes of the recipe stay as they are.
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
KEPT = 0.95  # of the accuracy of what is to be kept while something else is unlearned

Score = Callable[[float], float]  # of a coefficient, on validation rows


def best(score: Score, points: Sequence[float] = COEFFICIENTS) -> float:
    """The point with the highest score; of equal ones the smallest."""
    return max(points, key=score)


def lowest(
    score: Score, kept: Score, least: float, points: Sequence[float] = COEFFICIENTS
) -> float:
    """The point with the lowest score among those that keep at least so much; of equal ones the
    one that keeps most, then the smallest."""
    enough = (c for c in points if kept(c) >= least)
    return min(enough, key=lambda c: (score(c), -kept(c)))


def best_coefficient(
    cached: Mapping[str, Cached],
    labels: Mapping[str, Tensor],
    heads: Mapping[str, Head],
    recipe: Mapping[str, float],
    subtracted: Collection[str] = (),
) -> float:
    """alpha > 0 for a recipe of linearized vectors, by the mean accuracy of the tasks of `cached`.
    With 0 no task would be added, and none could be the answer.

    Where tasks are subtracted, the one at which they have least among those at which the other
    tasks keep 95 % of the most that any gives them.
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
