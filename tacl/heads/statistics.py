"""What closed-form heads are solved from: counts, class sums and the scatter of labelled rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacl.errors import EmptySplit
from tacl.heads.expansion import IDENTITY, Expansion


@dataclass(frozen=True, eq=False)
class HeadStatistics:
    """Of phi over the rows of one task, float64; the scatter is around the class means."""

    task: str
    base: str
    vector: str
    classes: tuple[str, ...]
    expansion: Expansion
    counts_C: Tensor
    sums_CD: Tensor
    scatter_DD: Tensor


def measured(
    task: str,
    base: str,
    vector: str,
    classes: Sequence[str],
    features_ND: Tensor,
    tangents_ND: Tensor,
    labels_N: Tensor,
    expansion: Expansion = IDENTITY,
) -> HeadStatistics:
    """Of phi(f(x; theta0) + J(x) tau). EmptySplit: a class has no labelled row."""
    counts_C = torch.bincount(labels_N, minlength=len(classes))
    none = [name for name, count in zip(classes, counts_C.tolist(), strict=True) if not count]
    if none:
        raise EmptySplit(f"{task}: the classes {none} have no labelled rows")
    phi_ND = expansion(features_ND.double() + tangents_ND.double())
    sums_CD = phi_ND.new_zeros(len(classes), phi_ND.shape[1]).index_add_(0, labels_N, phi_ND)
    apart_ND = phi_ND - (sums_CD / counts_C.unsqueeze(1))[labels_N]
    facts = (task, base, vector, tuple(classes), expansion, counts_C)
    return HeadStatistics(*facts, sums_CD, apart_ND.T @ apart_ND)
