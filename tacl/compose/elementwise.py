"""Merges that look at one entry at a time: TIES and MagMax. Both keep the recipe's signs.

They read the vectors c_t tau_t; what comes out is used like any tau, times 1 or times a
coefficient chosen on validation rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tacl.compose.arithmetic import block_terms
from tacl.vectors.params import Params
from tacl.vectors.vector import TaskVector

KEPT = 0.2


def ties(vectors: Sequence[TaskVector], coefficients: Sequence[float]) -> Params:
    """Trim, elect sign, disjoint mean (arXiv 2306.01708, algorithm 1).

    Of each vector the share KEPT of its entries, the largest over ALL its blocks, stays. The sign
    of an entry is that of the sum of what stayed; the mean is over those that have it.
    """
    least = {id(vector): _threshold(vector) for vector in vectors}
    ordered = sorted(zip(coefficients, vectors, strict=True), key=lambda t: (t[1].digest, t[0]))
    thresholds = [abs(c) * least[id(vector)] for c, vector in ordered]
    merged: Params = {}
    for name, terms in block_terms(vectors, coefficients):
        trimmed_T = torch.stack(
            [
                torch.where(term.abs() >= threshold, term, 0.0)
                for term, threshold in zip(terms, thresholds, strict=True)
            ]
        )
        agree_T = trimmed_T * trimmed_T.sum(0).sign() > 0
        merged[name] = (trimmed_T * agree_T).sum(0) / agree_T.sum(0).clamp_min(1)
    return merged


def _threshold(vector: TaskVector) -> float:
    """The size of the smallest entry that stays."""
    sizes_P = torch.cat([block.dense().flatten().abs() for block in vector.blocks.values()])
    stay = max(1, round(KEPT * len(sizes_P)))
    return sizes_P.kthvalue(len(sizes_P) - stay + 1).values.item()


def magmax(vectors: Sequence[TaskVector], coefficients: Sequence[float]) -> Params:
    """Of each entry the one of largest magnitude (arXiv 2407.06322, equation 2)."""
    return {name: _largest(terms) for name, terms in block_terms(vectors, coefficients)}


def _largest(terms: Sequence[Tensor]) -> Tensor:
    total = terms[0].clone()
    for term in terms[1:]:
        total = torch.where(term.abs() > total.abs(), term, total)
    return total
