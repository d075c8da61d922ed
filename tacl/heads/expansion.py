"""phi(z): the features that a solved head is linear in, as they are or randomly expanded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import normalize, relu


@dataclass(frozen=True)
class Expansion:
    """The identity where `width` is None, else relu(R z / |z|) with `width` Gaussian rows in R.

    Statistics add up only under one expansion, so its seed belongs to whoever adds
    (RanPAC, arXiv 2307.02251).
    """

    width: int | None = None
    seed: int = 0

    def __call__(self, features_ND: Tensor) -> Tensor:
        """phi of every row in its precision: [N, D], or [N, width]."""
        if self.width is None:
            return features_ND
        projection_DW = _projection(features_ND.shape[1], self.width, self.seed)
        return relu(normalize(features_ND, dim=-1) @ projection_DW.to(features_ND))


IDENTITY = Expansion()


@lru_cache(maxsize=4)  # rows come in batches, and 2,000 x 1,280 numbers take a while to draw
def _projection(dimension: int, width: int, seed: int) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(dimension, width, generator=random, dtype=torch.float64)
