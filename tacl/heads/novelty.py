"""None of these: how far features lie from all classes of a model, and where to draw the line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tacl.heads.expansion import Expansion
from tacl.heads.solve import Moments

KEPT = 0.95  # share of the model's own validation rows that are never called novel


@dataclass(frozen=True, eq=False)
class Distance:
    """Squared Mahalanobis distance to the nearest class mean, less that to the mean of all rows.

    Both under Gaussians of the same statistics: classes share one covariance, and `whole` is the
    covariance of all rows. The difference forgives what is unusual in any direction that tells no
    classes apart (arXiv 2106.09022).
    """

    within_DD: Tensor
    whole_DD: Tensor
    within_CD: Tensor
    whole_D: Tensor
    expansion: Expansion

    @staticmethod
    def of(moments: Moments, ridge: float) -> Distance:
        weight_C = moments.share_C / len(moments.tasks)
        mean_D = weight_C @ moments.mean_CD
        apart_CD = moments.mean_CD - mean_D
        within_DD = moments.covariance(ridge)
        whole_DD = within_DD + apart_CD.T @ (weight_C.unsqueeze(1) * apart_CD)
        within_DD, whole_DD = _whitening(within_DD), _whitening(whole_DD)
        return Distance(
            within_DD,
            whole_DD,
            (moments.mean_CD @ within_DD).float(),
            (mean_D @ whole_DD).float(),
            moments.expansion,
        )

    def __call__(self, features_BD: Tensor) -> Tensor:
        """[B]; larger is more novel."""
        found_BD = self.expansion(features_BD.float())
        near_B = torch.cdist(found_BD @ self.within_DD.float(), self.within_CD).amin(-1).square()
        return near_B - (found_BD @ self.whole_DD.float() - self.whole_D).square().sum(-1)


def _whitening(covariance_DD: Tensor) -> Tensor:
    """M with M M' = inverse of the covariance."""
    factor_DD = torch.linalg.cholesky(covariance_DD)
    identity_DD = torch.eye(len(factor_DD), dtype=factor_DD.dtype)
    return torch.linalg.solve_triangular(factor_DD, identity_DD, upper=False).T


def threshold(own: Mapping[str, Tensor], kept: float = KEPT) -> float:
    """The novelty up to which the share `kept` of the validation rows lies, tasks weighing the
    same; `own[t]` [N_t] of task t."""
    values_N = torch.cat(list(own.values())).double()
    weight_N = torch.cat([torch.full((len(v),), 1 / len(v) / len(own)) for v in own.values()])
    order_N = values_N.argsort()
    reached_N = weight_N.double()[order_N].cumsum(0) >= kept - 1e-9
    return values_N[order_N][int(reached_N.double().argmax())].item()


def auroc(own_N: Tensor, foreign_M: Tensor) -> float:
    """P(a foreign row's value is above an own row's), ties counting half."""
    if not len(own_N) or not len(foreign_M):
        raise ValueError(f"{len(own_N)} own and {len(foreign_M)} foreign rows: no pair to compare")
    ordered_N = own_N.double().sort().values
    below_M = torch.searchsorted(ordered_N, foreign_M.double())
    upto_M = torch.searchsorted(ordered_N, foreign_M.double(), right=True)
    return ((below_M + upto_M).double().mean() / 2 / len(own_N)).item()
