"""Heads in closed form from the statistics of a recipe's tasks: LDA and ridge regression.

Every task weighs the same, whatever its number of rows. Sums run in the order of the digests, in
float64, so that one recipe gives one head however it is written, and a task that was taken out
again leaves no trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacl.errors import BadRecipe, BaseMismatch
from tacl.heads.expansion import Expansion
from tacl.heads.linear import LinearHead
from tacl.heads.statistics import HeadStatistics, symmetric

RIDGE = 0.1  # of LDA's covariance, chosen on validation rows (results/heads-choice.md)


@dataclass(frozen=True, eq=False)
class Moments:
    """Of phi(f + a J tau_t) over the rows of all tasks, float64; each task's rows weigh 1 together.

    `share_C` is a class's weight, so that the shares of a task sum to 1.
    """

    classes: tuple[str, ...]
    tasks: dict[str, int]
    expansion: Expansion
    share_C: Tensor
    mean_CD: Tensor
    within_DD: Tensor

    @staticmethod
    def of(terms: Sequence[tuple[float, HeadStatistics]]) -> Moments:
        """Statistics with their vectors' coefficients; a negative one takes its task out.

        BadRecipe: no task is left, or one twice: two vectors of a task would have to be measured
        together. BaseMismatch: of different encoders or expansions.
        """
        known = sorted([pair for pair in terms if pair[0] >= 0], key=lambda pair: pair[1].digest)
        _require_together([statistics for _, statistics in known])
        first = known[0][1]
        scatter_P = torch.zeros(first.scatter_KP.shape[1], dtype=torch.float64)
        for coefficient, one in known:
            scatter_P += one.scatter_at(coefficient) / one.rows
        means = [one.sums_at(a) / one.counts_C.unsqueeze(1) for a, one in known]
        return Moments(
            tuple(name for _, one in known for name in one.classes),
            {one.task: len(one.classes) for _, one in known},
            first.expansion,
            torch.cat([one.counts_C.double() / one.rows for _, one in known]),
            torch.cat(means),
            symmetric(scatter_P, first.dimension),
        )

    def covariance(self, ridge: float = RIDGE) -> Tensor:
        """The one covariance that all classes share, with `ridge` of its mean variance added."""
        return _ridged(self.within_DD / len(self.tasks), ridge)


def lda(moments: Moments, ridge: float = RIDGE) -> LinearHead:
    """log P(class | x) of Gaussians with one covariance, up to a constant.

    Priors are uniform over tasks, and over the classes of a task (SLDA, arXiv 1909.01520).
    """
    factor_DD = torch.linalg.cholesky(moments.covariance(ridge))
    weight_CD = torch.cholesky_solve(moments.mean_CD.T, factor_DD).T
    sizes = torch.tensor(list(moments.tasks.values()))
    prior_C = -(len(sizes) * sizes.double()).log().repeat_interleave(sizes)
    bias_C = prior_C - 0.5 * (weight_CD * moments.mean_CD).sum(-1)
    return _head(moments, weight_CD, bias_C)


def ridge(
    moments: Moments, penalty: float, start_CD: Tensor | None = None, held: float = 1.0
) -> LinearHead:
    """Least squares on one-hot classes with a free intercept: W = (G + p I)^-1 (H + p s W0).

    `penalty` p is relative to the mean of G's diagonal, and draws towards `held` s W0 where the
    head `start_CD` W0 is given (its rows in the order of the moments' classes): s is the scale at
    which W0 fits best, and with p = 0 it does not matter. RanPAC (arXiv 2307.02251) without W0.
    """
    mean_D, gram_DD, target_CD = _centred(moments)
    ridged_DD = _ridged(gram_DD, penalty)
    added = ridged_DD.diagonal()[0] - gram_DD.diagonal()[0]
    if start_CD is not None:
        start_CD = start_CD.double()
        scale = (target_CD * start_CD).sum() / ((start_CD @ gram_DD) * start_CD).sum()
        target_CD = target_CD + added * held * scale * start_CD
    factor_DD = torch.linalg.cholesky(ridged_DD)
    weight_CD = torch.cholesky_solve(target_CD.T, factor_DD).T
    return _head(moments, weight_CD, moments.share_C / len(moments.tasks) - weight_CD @ mean_D)


def _centred(moments: Moments) -> tuple[Tensor, Tensor, Tensor]:
    """Mean of all rows, their covariance G, and that with the one-hot classes, H."""
    weight_C = moments.share_C / len(moments.tasks)
    mean_D = weight_C @ moments.mean_CD
    apart_CD = moments.mean_CD - mean_D
    target_CD = weight_C.unsqueeze(1) * apart_CD
    return mean_D, moments.within_DD / len(moments.tasks) + apart_CD.T @ target_CD, target_CD


def _ridged(matrix_DD: Tensor, ridge: float) -> Tensor:
    return matrix_DD + ridge * matrix_DD.diagonal().mean() * torch.eye(len(matrix_DD)).double()


def _head(moments: Moments, weight_CD: Tensor, bias_C: Tensor) -> LinearHead:
    facts = (moments.classes, moments.tasks, moments.expansion)
    return LinearHead(weight_CD.float(), bias_C.float(), *facts)


def _require_together(statistics: Sequence[HeadStatistics]) -> None:
    tasks = [one.task for one in statistics]
    if not tasks:
        raise BadRecipe("no task with a positive coefficient: there is nothing to answer with")
    twice = sorted({task for task in tasks if tasks.count(task) > 1})
    if twice:
        raise BadRecipe(
            f"two vectors of {', '.join(twice)} in one recipe: statistics of each alone do not "
            f"add up to those of both; use one of them"
        )
    kinds = {(one.base, one.expansion, one.dimension) for one in statistics}
    if len(kinds) > 1:
        raise BaseMismatch(f"head statistics of different encoders or expansions: {kinds}")
