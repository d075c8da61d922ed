"""What every vector contributes to an answer: f + sum_t a_t J tau_t is a sum, so each has its part.

To the features the parts are exact. A head reads directions, W z / |z|, so its logits are affine in
the parts only at the lengths that the answer has: at these the parts add up to the logits exactly.
They do not say what the answer were without a vector, whose lengths would be others; leaving it out
does (`without`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacl.heads.columns import Columns
from tacl.heads.head import Head

SHORTEST = 1e-12  # a length below it counts as it, as in `torch.nn.functional.normalize`


@dataclass(frozen=True)
class Parts:
    """Of one row: plain_D = f(x; theta0), and the moves_TD = a_t J(x) tau_t of each vector."""

    plain_D: Tensor
    moves_TD: Tensor

    @property
    def features_D(self) -> Tensor:
        """f(x) + sum_t a_t J(x) tau_t."""
        return self.plain_D + self.moves_TD.sum(0)

    @property
    def all_PD(self) -> Tensor:
        """The base first, then the vectors."""
        return torch.cat([self.plain_D.unsqueeze(0), self.moves_TD])

    def lengths(self) -> list[float]:
        """|part|_2, in units of the features."""
        return self.all_PD.norm(dim=-1).tolist()

    def shares(self) -> list[float]:
        """What is of each part in the features, <part, z> / |z|^2: together 1."""
        length = self.features_D.norm().clamp_min(SHORTEST)
        return (self.all_PD @ self.features_D / length**2).tolist()

    def logits(self, columns: Columns) -> Tensor:
        """What each part adds to each logit, [P, C]; the sum over the parts is the logits."""
        return torch.cat([self._of_head(head) for head in columns.heads.values()], -1)

    def answered(self, columns: Columns) -> Tensor:
        """The logits, [C]."""
        return columns.logits(self.features_D.unsqueeze(0), self.plain_D.unsqueeze(0))[0]

    def without(self, columns: Columns) -> Tensor:
        """The logits with each vector left out, [T, C], by the same heads."""
        moved_TD = self.features_D - self.moves_TD
        return columns.logits(moved_TD, self.plain_D.expand_as(moved_TD))

    def _of_head(self, head: Head) -> Tensor:
        views_PD = self.all_PD
        if head.narrow_CD is not None:  # as `tacl.heads.head.beside`
            plain_PD, moves_PD = torch.zeros_like(self.all_PD), torch.zeros_like(self.all_PD)
            plain_PD[0] = self.plain_D / _length(self.plain_D)
            moves_PD[1:] = self.moves_TD / _length(self.features_D - self.plain_D)
            moved_PD = self.all_PD / _length(self.features_D)
            views_PD = torch.cat([moved_PD, plain_PD, moves_PD], -1)
        return head.scale * views_PD / _length(views_PD.sum(0)) @ head.weight_CD.T


def _length(view_D: Tensor) -> Tensor:
    return view_D.norm().clamp_min(SHORTEST)
