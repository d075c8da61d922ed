"""How far a row is from the labelled rows of a task, relative to how these spread.

The relative Mahalanobis distance to the nearest class (arXiv 2106.09022, equation 3): the distance
to its mean under the covariance within classes, less that to the mean of all rows under their
covariance. What is large for every row thus cancels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from tacl.vectors.params import Params

SHRINKAGE = 0.1  # this share of the mean variance is added to a covariance's diagonal


@dataclass(frozen=True)
class Mahalanobis:
    """The distance of a row x of length 1 to class c is x Q x - 2 w_c x + b_c.

    Q: `matrix_EE`, the inverse covariance within classes less that of all rows; w: `weight_CE`;
    b: `offset_C`, infinite for a class without rows.
    """

    matrix_EE: Tensor
    weight_CE: Tensor
    offset_C: Tensor

    @staticmethod
    def of(
        rows: Mapping[str, tuple[Tensor, Tensor]], sizes: Mapping[str, int]
    ) -> Mahalanobis | None:
        """From features_NE and labels_N by task; `sizes`: the number of classes of each task, in
        order. None if there are no rows."""
        if not any(len(labels_N) for _, labels_N in rows.values()):
            return None
        width = next(iter(rows.values()))[0].shape[1]
        second_EE, sums, counts = torch.zeros(width, width).double(), [], []
        for task, size in sizes.items():  # one by one to save memory: rows are many
            features_NE, labels_N = rows.get(task, (torch.zeros(0, width), torch.zeros(0)))
            unit_NE, labels_N = normalize(features_NE.double(), dim=-1), labels_N.long()
            second_EE += unit_NE.T @ unit_NE
            sums.append(torch.zeros(size, width).double().index_add(0, labels_N, unit_NE))
            counts.append(torch.bincount(labels_N, minlength=size))
        return _of_sums(second_EE, torch.cat(sums), torch.cat(counts))

    def distances(self, rows_NE: Tensor, sizes: Sequence[int]) -> Tensor:
        """Distances to the nearest class of each task, [N, T]; `sizes` as in `of`, in order."""
        unit_NE = normalize(rows_NE.float(), dim=-1)
        own_N = (unit_NE @ self.matrix_EE * unit_NE).sum(-1, keepdim=True)
        far_NC = own_N - 2 * unit_NE @ self.weight_CE.T + self.offset_C
        return torch.stack([far_NK.min(-1).values for far_NK in far_NC.split([*sizes], -1)], -1)

    def to_params(self) -> Params:
        return {"matrix": self.matrix_EE, "weight": self.weight_CE, "offset": self.offset_C}

    @staticmethod
    def from_params(params: Params) -> Mahalanobis:
        return Mahalanobis(params["matrix"], params["weight"], params["offset"])


def _of_sums(second_EE: Tensor, sums_CE: Tensor, rows_C: Tensor) -> Mahalanobis:
    """Coefficients of (x - m_c) P (x - m_c) - (x - m) R (x - m), multiplied out."""
    count, mean_E = rows_C.sum(), sums_CE.sum(0) / rows_C.sum()
    means_CE = sums_CE / rows_C.clamp_min(1).unsqueeze(-1)
    within_EE = _inverse((second_EE - means_CE.T @ sums_CE) / count)
    apart_EE = _inverse(second_EE / count - mean_E.outer(mean_E))
    weight_CE = means_CE @ within_EE - mean_E @ apart_EE
    offset_C = (means_CE @ within_EE * means_CE).sum(-1) - mean_E @ apart_EE @ mean_E
    offset_C = offset_C.where(rows_C > 0, torch.inf)
    parts = within_EE - apart_EE, weight_CE, offset_C
    return Mahalanobis(*(part.float().contiguous() for part in parts))


def _inverse(covariance_EE: Tensor) -> Tensor:
    """Inverse of the covariance after shrinkage, with a least noise for rows that are all equal."""
    noise = (SHRINKAGE * covariance_EE.diagonal().mean()).clamp_min(1e-8)
    return torch.linalg.inv(covariance_EE + noise * torch.eye(len(covariance_EE)).double())
