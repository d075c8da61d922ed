"""Heads in closed form from the statistics of several tasks: LDA and ridge regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacl.heads.expansion import Expansion
from tacl.heads.linear import LinearHead
from tacl.heads.statistics import HeadStatistics


@dataclass(frozen=True, eq=False)
class Moments:
    """Of phi over the rows of all tasks, float64; `share_C` is a class's part of all weight."""

    tasks: dict[str, int]
    expansion: Expansion
    share_C: Tensor
    prior_C: Tensor
    mean_CD: Tensor
    within_DD: Tensor

    @staticmethod
    def of(terms: Sequence[tuple[float, HeadStatistics]]) -> Moments:
        """(weight, statistics) of tasks of one encoder and expansion: all rows of a task weigh that
        together, however many they are, and so do its classes in the prior."""
        total, known = sum(weight for weight, _ in terms), [one for _, one in terms]
        pairs = [(weight / total, one) for weight, one in terms]
        shares = [part * one.counts_C.double() / one.counts_C.sum() for part, one in pairs]
        priors = [torch.full((len(one.classes),), part / len(one.classes)) for part, one in pairs]
        scatters = [part / one.counts_C.sum() * one.scatter_DD for part, one in pairs]
        return Moments(
            {one.task: len(one.classes) for one in known},
            known[0].expansion,
            torch.cat(shares),
            torch.cat(priors).double(),
            torch.cat([one.sums_CD / one.counts_C.unsqueeze(1) for one in known]),
            torch.stack(scatters).sum(0),
        )


def lda(moments: Moments, ridge: float) -> LinearHead:
    """log P(class | x) of Gaussians with one covariance, up to a constant (SLDA, arXiv 1909.01520).

    `ridge` is relative to the mean of the covariance's diagonal.
    """
    weight_CD = _solved(moments.within_DD, moments.mean_CD, ridge)
    bias_C = moments.prior_C.log() - 0.5 * (weight_CD * moments.mean_CD).sum(-1)
    return _head(moments, weight_CD, bias_C)


def ridge(moments: Moments, penalty: float) -> LinearHead:
    """Least squares on one-hot classes with a free intercept: W = (G + p I)^-1 H.

    G is the covariance of all rows, H that with the one-hot classes; `penalty` p is relative to the
    mean of G's diagonal (RanPAC, arXiv 2307.02251).
    """
    mean_D = moments.share_C @ moments.mean_CD
    apart_CD = moments.mean_CD - mean_D
    target_CD = moments.share_C.unsqueeze(1) * apart_CD
    weight_CD = _solved(moments.within_DD + apart_CD.T @ target_CD, target_CD, penalty)
    return _head(moments, weight_CD, moments.share_C - weight_CD @ mean_D)


def _solved(matrix_DD: Tensor, right_CD: Tensor, ridge: float) -> Tensor:
    ridged_DD = matrix_DD + ridge * matrix_DD.diagonal().mean() * torch.eye(len(matrix_DD)).double()
    return torch.cholesky_solve(right_CD.T, torch.linalg.cholesky(ridged_DD)).T


def _head(moments: Moments, weight_CD: Tensor, bias_C: Tensor) -> LinearHead:
    return LinearHead(weight_CD.float(), bias_C.float(), moments.tasks, moments.expansion)
