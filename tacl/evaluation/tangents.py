"""Cached tangents: the linearized model is linear in tau, so evaluation is addition.

With f(x; theta0) and J(x) tau_t kept for every row and vector, the features under any coefficients
are f + sum_t c_t J tau_t: the encoder need not run again (arXiv 2305.12827 for the linearization).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tacl.backbone import Batch, Item
from tacl.data.batches import in_order
from tacl.vectors.params import Params


class DualForward(Protocol):
    """The part of the linearized encoder that is used here."""

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]: ...
    def load_tau(self, tau: Params, /) -> None: ...
    def tau_dict(self) -> Params: ...  # a copy


class Collates(Protocol):
    def collate(self, items: Sequence[Item]) -> Batch: ...


@dataclass(frozen=True)
class Cached:
    """features_ND = f(x; theta0); tangents[t] = J(x) tau_t, [N, D]; rows in the items' order."""

    features_ND: Tensor
    tangents: dict[str, Tensor]

    def linearized(self, coefficients: Mapping[str, float]) -> Tensor:
        """f + sum_t c_t J tau_t, [N, D]: the features of the composed linearized model."""
        total_ND = self.features_ND.clone()
        for name, coefficient in coefficients.items():
            total_ND.add_(self.tangents[name], alpha=coefficient)
        return total_ND


@torch.no_grad()
def cached_tangents(
    module: DualForward,
    backbone: Collates,
    items: Sequence[Item],
    taus: Mapping[str, Params],
    batch: int = 64,
) -> Cached:
    """One dual pass per vector over the items, in batches of similar length; on the CPU, float32.

    The module's own tau is restored afterwards.
    """
    if not items or not taus:
        raise ValueError(f"{len(items)} items and {len(taus)} vectors: nothing to cache")
    own = module.tau_dict()
    features_ND, tangents = torch.empty(0), {}
    try:
        for name, tau in taus.items():
            module.load_tau(tau)
            features_ND, tangents[name] = in_order(
                items, batch, lambda some: module(backbone.collate(some))
            )
    finally:
        module.load_tau(own)
    return Cached(features_ND, tangents)
