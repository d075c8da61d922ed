"""Heads in closed form from moments of the rows of several tasks: LDA and ridge regression."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import normalize, relu

from tacl.errors import EmptySplit

Rows = tuple[Tensor, Tensor]  # features_ND, labels_N among the classes of the rows' own task


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of labelled rows, float64. Tasks have equal total weight, whatever their number of
    rows, and the classes of a task have equal priors; `share_C` is a class's part of all weight,
    and `within_DD` the covariance around the class means."""

    share_C: Tensor
    prior_C: Tensor
    mean_CD: Tensor
    within_DD: Tensor

    @staticmethod
    def of(rows: Iterable[tuple[str, Rows]], classes: Mapping[str, Sequence[str]]) -> Moments:
        """Moments of tasks of one encoder, columns in the tasks' order. Raises EmptySplit if a
        class has no row."""
        found = [_moments(task, *own, classes[task]) for task, own in rows]
        shares, priors, means, withins = zip(*found, strict=True)
        return Moments(
            torch.cat(shares) / len(found),
            torch.cat(priors) / len(found),
            torch.cat(means),
            torch.stack(withins).mean(0),
        )


def _moments(
    task: str, features_ND: Tensor, labels_N: Tensor, classes: Sequence[str]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Shares, priors and means of one task's classes, and the covariance around these means."""
    counts_C = torch.bincount(labels_N, minlength=len(classes))
    none = [name for name, count in zip(classes, counts_C.tolist(), strict=True) if not count]
    if none:
        raise EmptySplit(f"{task}: the classes {none} have no labelled rows")
    rows_ND = features_ND.double()
    sums_CD = rows_ND.new_zeros(len(classes), rows_ND.shape[1]).index_add_(0, labels_N, rows_ND)
    mean_CD = sums_CD / counts_C.unsqueeze(1)
    apart_ND = rows_ND - mean_CD[labels_N]
    prior_C = torch.full((len(classes),), 1 / len(classes)).double()
    rows = len(labels_N)
    return counts_C.double() / rows, prior_C, mean_CD, apart_ND.T @ apart_ND / rows


@dataclass(frozen=True)
class LinearHead:
    """logits = z W' + b, of features z that are not normalised."""

    weight_CD: Tensor
    bias_C: Tensor

    def logits(self, features_BD: Tensor) -> Tensor:
        """Logits [B, C]."""
        return features_BD @ self.weight_CD.T + self.bias_C


def lda(moments: Moments, ridge: float) -> LinearHead:
    """log P(class | x) of Gaussians with one covariance, up to a constant (SLDA, arXiv 1909.01520).

    `ridge` is relative to the mean of the covariance's diagonal.
    """
    weight_CD = _solved(moments.within_DD, moments.mean_CD, ridge)
    bias_C = moments.prior_C.log() - 0.5 * (weight_CD * moments.mean_CD).sum(-1)
    return LinearHead(weight_CD.float(), bias_C.float())


def ridge(moments: Moments, penalty: float) -> LinearHead:
    """Least squares on one-hot classes with a free intercept: W = (G + p I)^-1 H.

    G is the covariance of all rows, H that with the one-hot classes; `penalty` p is relative to the
    mean of G's diagonal (RanPAC, arXiv 2307.02251).
    """
    mean_D = moments.share_C @ moments.mean_CD
    apart_CD = moments.mean_CD - mean_D
    target_CD = moments.share_C.unsqueeze(1) * apart_CD
    weight_CD = _solved(moments.within_DD + apart_CD.T @ target_CD, target_CD, penalty)
    bias_C = moments.share_C - weight_CD @ mean_D
    return LinearHead(weight_CD.float(), bias_C.float())


def _solved(matrix_DD: Tensor, right_CD: Tensor, ridge: float) -> Tensor:
    ridged_DD = matrix_DD + ridge * matrix_DD.diagonal().mean() * torch.eye(len(matrix_DD)).double()
    return torch.cholesky_solve(right_CD.T, torch.linalg.cholesky(ridged_DD)).T


def expanded(features_ND: Tensor, width: int, seed: int) -> Tensor:
    """relu(R z / |z|) with `width` Gaussian rows in R, [N, width], in the features' precision.

    Statistics can be added only under the same R, so the caller that adds them chooses its seed
    (RanPAC, arXiv 2307.02251).
    """
    projection_DW = _projection(features_ND.shape[1], width, seed)
    return relu(normalize(features_ND, dim=-1) @ projection_DW.to(features_ND))


@lru_cache(maxsize=4)  # rows come task by task, and drawing 2,000 x 1,280 numbers takes a while
def _projection(dimension: int, width: int, seed: int) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(dimension, width, generator=random, dtype=torch.float64)
