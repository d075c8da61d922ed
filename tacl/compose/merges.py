"""Merges of vectors that are more than a sum; all keep the recipe's signs.

TIES and MagMax read one entry at a time, TSV-M, Iso-C and OPCM singular vectors. They take the
vectors c_t tau_t; the result is used like any tau, times 1 or times a coefficient chosen on
validation rows.

A matrix is a block of two dimensions, or a convolution viewed as [out, in * k * k]; depthwise
convolutions are not matrices, as they mix no channels. TSV-M and Iso-C average all other blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tacl.compose.arithmetic import block_terms, ordered
from tacl.vectors import Params, TaskVector, params

KEPT = 0.2
LARGER = 0.5  # share of the singular values' sum: that of the larger directions
# A singular value below this many eps of the largest counts as zero. In a product of rank 8, values
# that should be zero reach 9 eps; in trained matrices (text8, MiniLM) the median of the smallest is
# 750 eps. The usual bound, eps times the longer side, would take a third of these for zero.
ROUNDING = 32


def ties(vectors: Sequence[TaskVector], coefficients: Sequence[float]) -> Params:
    """Trim, elect sign, disjoint mean (arXiv 2306.01708, algorithm 1).

    Each vector keeps the share KEPT of its entries, the largest over ALL its blocks. The sign of an
    entry is that of the sum of the kept values; the mean is over those with that sign.
    """
    # Rounded as the terms are, or entries equal to the threshold might fall below it.
    thresholds = [(c * _threshold(vector)).abs() for c, vector in ordered(vectors, coefficients)]
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


def _threshold(vector: TaskVector) -> Tensor:
    """The size of the smallest entry that is kept, a scalar."""
    sizes_P = torch.cat([block.dense().flatten().abs() for block in vector.blocks.values()])
    stay = max(1, round(KEPT * len(sizes_P)))
    return sizes_P.kthvalue(len(sizes_P) - stay + 1).values


def magmax(vectors: Sequence[TaskVector], coefficients: Sequence[float]) -> Params:
    """For each entry, the vectors' value of largest magnitude (arXiv 2407.06322, equation 2)."""
    return {name: _largest(terms) for name, terms in block_terms(vectors, coefficients)}


def _largest(terms: Sequence[Tensor]) -> Tensor:
    total = terms[0].clone()
    for term in terms[1:]:
        total = torch.where(term.abs() > total.abs(), term, total)
    return total


def is_matrix(block: Tensor) -> bool:
    return block.ndim >= 2 and block.shape[0] > 1 and block.shape[1] > 1


def tsv_m(vectors: Sequence[TaskVector], coefficients: Sequence[float]) -> Params:
    """Task singular vectors, whitened against each other (arXiv 2412.00081, algorithm 1).

    Each of T matrices keeps its largest rank / T singular triples; all left and all right singular
    vectors are then replaced by the closest orthogonal ones.
    """
    return {
        name: _whitened(terms) if is_matrix(terms[0]) else _mean(terms)
        for name, terms in block_terms(vectors, coefficients)
    }


def _whitened(terms: Sequence[Tensor]) -> Tensor:
    lefts, sizes, rights = [], [], []
    for term in terms:
        u_OR, s_R, v_RI = _triples(term.flatten(1))
        rank = max(1, len(s_R) // len(terms))
        lefts.append(u_OR[:, :rank])
        sizes.append(s_R[:rank])
        rights.append(v_RI[:rank])
    left_OK, right_KI = _orthogonal(torch.cat(lefts, dim=1)), _orthogonal(torch.cat(rights))
    return (left_OK * torch.cat(sizes) @ right_KI).view_as(terms[0])


def _triples(matrix_OI: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U, singular values and V' of a matrix. For a value of zero, as of a vector that lacks a block
    or has low rank, both vectors are zero too: arbitrary ones would displace real ones."""
    u_OR, s_R, v_RI = torch.linalg.svd(matrix_OI, full_matrices=False)
    real_R = s_R > ROUNDING * torch.finfo(s_R.dtype).eps * s_R[0]
    return u_OR * real_R, s_R * real_R, v_RI * real_R.unsqueeze(1)


def _orthogonal(matrix: Tensor) -> Tensor:
    """The closest matrix with orthonormal rows or columns (Procrustes): U V' of its SVD."""
    u, _, v = _triples(matrix)
    return u @ v


def iso_c(vectors: Sequence[TaskVector], coefficients: Sequence[float]) -> Params:
    """The sum, with all nonzero singular values set to their mean (arXiv 2502.04959, equation
    6)."""
    return {
        name: _isotropic(torch.stack(terms).sum(0)) if is_matrix(terms[0]) else _mean(terms)
        for name, terms in block_terms(vectors, coefficients)
    }


def _isotropic(block: Tensor) -> Tensor:
    u_OR, s_R, v_RI = _triples(block.flatten(1))
    mean = s_R.sum() / (s_R > 0).sum().clamp_min(1)
    return (mean * u_OR @ v_RI).view_as(block)


def _mean(terms: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(terms)).mean(0)


def opcm(vectors: Sequence[TaskVector], coefficients: Sequence[float]) -> Params:
    """Merged in the order of arrival (arXiv 2501.09522, equations 3 to 6).

    The part of a new vector in the larger directions of the merged tau, and along each of its
    singular directions, is projected out; then the merged tau is scaled to the mean norm of the
    vectors so far.
    """
    scaled = (params.scale(c, v.to_params()) for c, v in zip(coefficients, vectors, strict=True))
    merged, divisor = next(scaled), 1.0
    norms = [params.norm(merged)]
    for tau in scaled:
        params.require_same_blocks(merged, tau)
        total = {
            name: divisor * old + (_beside(tau[name], old) if is_matrix(old) else tau[name])
            for name, old in merged.items()
        }
        norms.append(params.norm(tau))
        length, target = params.norm(total), sum(norms) / len(norms)
        if math.isclose(length, 0.0):
            merged, divisor = total, 1.0
        else:
            merged, divisor = params.scale(target / length, total), length / target
    return merged


def _beside(new: Tensor, old: Tensor) -> Tensor:
    """`new` without its part in the larger directions of `old`, or along any one of them all."""
    u_OO, s_R, v_II = torch.linalg.svd(old.flatten(1), full_matrices=True)
    seen_OI = u_OO.T @ new.flatten(1) @ v_II.T
    larger = int((s_R.cumsum(0) / s_R.sum().clamp_min(1e-30) <= LARGER).sum())
    seen_OI.diagonal().zero_()
    seen_OI[:larger, :larger] = 0
    return (u_OO @ seen_OI @ v_II).view_as(new)
