"""What each vector contributes to an answer: its term of the sum f + sum_t a_t J tau_t.

The features are exactly the sum of these parts. A head reads directions, W z / |z|, so its logits
are linear in the parts only with |z| fixed: at the lengths of the answer, the parts add up to the
logits exactly. They do not say what the answer would be without a vector, as the lengths would
differ; `without` leaves it out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacl.heads.columns import Columns
from tacl.heads.head import Head

SHORTEST = 1e-12  # lengths are clamped to at least this, as in `torch.nn.functional.normalize`


@dataclass(frozen=True)
class Contributions:
    """The parts of one row: plain_E = f(x; theta0), with the outputs of inner blocks beside it if
    heads read those, and moves_TD = a_t J(x) tau_t of each vector."""

    plain_E: Tensor
    moves_TD: Tensor

    @property
    def base_D(self) -> Tensor:
        """f(x; theta0)."""
        return self.plain_E[: self.moves_TD.shape[1]]

    @property
    def features_D(self) -> Tensor:
        """f(x) + sum_t a_t J(x) tau_t."""
        return self.base_D + self.moves_TD.sum(0)

    @property
    def all_PD(self) -> Tensor:
        """All parts of the features: the base first, then the vectors."""
        return torch.cat([self.base_D.unsqueeze(0), self.moves_TD])

    def lengths(self) -> list[float]:
        """|part|_2, in units of the features."""
        return self.all_PD.norm(dim=-1).tolist()

    def shares(self) -> list[float]:
        """The share of each part in the features z, <part, z> / |z|^2; the shares add up to 1."""
        length = self.features_D.norm().clamp_min(SHORTEST)
        return (self.all_PD @ self.features_D / length**2).tolist()

    def logits(self, columns: Columns) -> Tensor:
        """What each part adds to each logit, [P, C]; the sum over the parts is the logits."""
        return torch.cat([self._of_head(head) for head in columns.heads.values()], -1)

    def answered(self, columns: Columns) -> Tensor:
        """The logits, [C]."""
        return columns.logits(self.features_D.unsqueeze(0), self.plain_E.unsqueeze(0))[0]

    def without(self, columns: Columns) -> Tensor:
        """The logits with each vector left out, [T, C], by the same heads."""
        moved_TD = self.features_D - self.moves_TD
        return columns.logits(moved_TD, self.plain_E.expand(len(moved_TD), -1))

    def _of_head(self, head: Head) -> Tensor:
        views_PV = self.all_PD
        if head.narrow_CD is not None:  # as in `tacl.heads.head.beside`
            base_D, inner_K = self.base_D, self.plain_E[len(self.base_D) :]
            plain_PE = self.plain_E.new_zeros(len(self.all_PD), len(self.plain_E))
            plain_PE[0] = torch.cat([base_D / _length(base_D), inner_K / _length(base_D)])
            plain_PD, inner_PK = plain_PE.split([len(base_D), len(inner_K)], -1)
            moves_PD = torch.zeros_like(self.all_PD)
            moves_PD[1:] = self.moves_TD / _length(self.features_D - base_D)
            moved_PD = self.all_PD / _length(self.features_D)
            views_PV = torch.cat([moved_PD, plain_PD, moves_PD, inner_PK], -1)
            views_PV = head.read(views_PV)
        return head.scale * views_PV / _length(views_PV.sum(0)) @ head.weight_CD.T


def _length(view_D: Tensor) -> Tensor:
    return view_D.norm().clamp_min(SHORTEST)
