"""Cached tangents: the linearized model is linear in tau, so evaluation is addition.

With f(x; theta0) and J(x) tau_t kept for every row and vector, the features under any coefficients
are f + sum_t c_t J tau_t: the encoder need not run again (arXiv 2305.12827 for the linearization).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from tacl.backbone import Batch, Item
from tacl.backbone.padding import passes
from tacl.data.batches import in_order
from tacl.vectors.params import Params


class DualForward(Protocol):
    """The part of the linearized encoder that is used here."""

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]: ...
    def load_tau(self, tau: Params, /) -> None: ...
    def tau_dict(self) -> Params: ...  # a copy


class Collates(Protocol):
    def collate(self, items: Sequence[Item]) -> Batch: ...


class Watches(Collates, Protocol):
    def watched(self, batch: Batch) -> AbstractContextManager[Callable[[Tensor], Tensor]]: ...


class Moved(NamedTuple):
    """Rows at theta0 as heads read them, plain_NE, and f(x; theta0) + J(x) tau of the same rows."""

    plain_NE: Tensor
    moved_ND: Tensor


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


@torch.no_grad()
def moved_rows(
    module: DualForward, backbone: Watches, items: Sequence[Item], tau: Params, batch: int = 64
) -> Moved:
    """Rows at theta0 and moved by tau, in one dual pass: its first part is the pass at theta0.

    Float32 on the CPU, in the items' order. The module's own tau is restored afterwards.
    """

    def both(some: list[Item]) -> tuple[Tensor, Tensor]:
        found: dict[int, tuple[Tensor, Tensor]] = {}
        for rows, part in passes(backbone.collate(some)):  # as the module would cut the batch
            with backbone.watched(part) as plain:
                features_BD, tangent_BD = module(part)
                views = zip(plain(features_BD), features_BD + tangent_BD, strict=True)
            found |= zip(rows, views, strict=True)
        plain_BE, moved_BD = zip(*(found[row] for row in range(len(some))), strict=True)
        return torch.stack(plain_BE), torch.stack(moved_BD)

    own = module.tau_dict()
    try:
        module.load_tau(tau)
        return Moved(*in_order(items, batch, both))
    finally:
        module.load_tau(own)
