"""theta0 + sum_t c_t tau_t: addition, negation, any subset, any coefficients (arXiv 2212.04089)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from tacl.errors import BadRecipe, BaseMismatch, MixedRegimes
from tacl.vectors import Params, TaskVector
from tacl.vectors.blocks import Block, as_rows

PIECE = 2**20  # entries of a piece of a sum: 4 MB


def composed(
    vectors: Sequence[TaskVector], coefficients: Sequence[float], out: Params | None = None
) -> Params:
    """sum_t c_t tau_t, dense float32; a block that a vector lacks counts as zero.

    Vectors are added in the order of their digests, so that the sum does not depend, even in its
    last bit, on the order in which the recipe was written. `out` is an earlier sum of the same
    blocks, whose memory is reused.

    Raises BadRecipe for no vectors or differing shapes, BaseMismatch, MixedRegimes, ValueError
    unless there is one coefficient for each vector. Source: arXiv 2212.04089.
    """
    total: Params = {}
    for name, shape, terms in _terms(vectors, coefficients):
        total[name] = torch.empty(shape, device=_device(terms)) if out is None else out[name]
        sum_blocks(total[name], [(c, block) for c, block in terms if block is not None])
    return total


def sum_blocks(out: Tensor, terms: Sequence[tuple[float, Block]]) -> None:
    """Writes sum_t c_t tau_t of one block (at least one term) to `out`, in one pass.

    A piece of `out` stays in the processor's cache while the vectors' rows are added to it: every
    vector is read once from memory, the sum is written once, and no scaled copy is made.
    """
    if len(terms) <= 2:  # one call does it: `out` is written once anyway
        _sum_rows(out, ((c, block.dense()) for c, block in terms))
        return
    out_OI = as_rows(out)
    rows = max(1, PIECE // max(1, out_OI.shape[1]))
    coefficients = [c for c, _ in terms]
    pieces = zip(*(block.pieces(rows) for _, block in terms), strict=True)
    for piece, taus in zip(out_OI.split(rows), pieces, strict=True):
        _sum_rows(piece, zip(coefficients, taus, strict=True))


def _sum_rows(piece: Tensor, terms: Iterator[tuple[float, Tensor]]) -> None:
    c, first = next(terms)
    if c == 1 and (second := next(terms, None)):  # as in most sums: one call, not two
        torch.add(first, second[1], alpha=second[0], out=piece)
    else:
        torch.mul(first, c, out=piece)
    for c, tau in terms:
        piece.add_(tau, alpha=c)


def block_terms(
    vectors: Sequence[TaskVector], coefficients: Sequence[float]
) -> Iterator[tuple[str, list[Tensor]]]:
    """Yields (block, [c_t tau_t,b of every vector]), dense float32, for merges by block.

    Zeros stand for a block that a vector lacks. The order is that of the vectors' digests, as in
    `composed`.
    """
    for name, shape, terms in _terms(vectors, coefficients):
        zeros = torch.zeros(shape, device=_device(terms))
        yield name, [zeros if block is None else c * block.dense() for c, block in terms]


def _device(terms: Sequence[tuple[float, Block | None]]) -> torch.device:
    """The device of the vectors."""
    block = next(block for _, block in terms if block is not None)
    return next(iter(block.parts().values())).device


def require_one_model(vectors: Sequence[TaskVector]) -> None:
    """Raises BadRecipe, BaseMismatch or MixedRegimes when the vectors cannot be added."""
    if not vectors:
        raise BadRecipe("a composition needs at least one vector")
    first, *others = vectors
    for other in others:
        if other.base != first.base:
            raise BaseMismatch(
                f"{first.task} belongs to the base {first.base[:12]} and {other.task} to "
                f"{other.base[:12]}; vectors of different base models do not add up"
            )
        if other.regime != first.regime:
            raise MixedRegimes(
                f"{first.task} is {first.regime} and {other.task} is {other.regime}; "
                "compose vectors of one regime"
            )


def ordered(
    vectors: Sequence[TaskVector], coefficients: Sequence[float]
) -> list[tuple[float, TaskVector]]:
    """(c_t, tau_t) in the order of the vectors' digests."""
    pairs = zip(coefficients, vectors, strict=True)
    return sorted(pairs, key=lambda term: (term[1].digest, term[0]))


def _terms(
    vectors: Sequence[TaskVector], coefficients: Sequence[float]
) -> Iterator[tuple[str, tuple[int, ...], list[tuple[float, Block | None]]]]:
    """(block, its shape, [(c_t, tau_t,b)]) in the order of the vectors' digests."""
    require_one_model(vectors)
    of_all = ordered(vectors, coefficients)
    for name in dict.fromkeys(name for _, vector in of_all for name in vector.blocks):
        terms = [(c, vector.blocks.get(name)) for c, vector in of_all]
        shapes = {tuple(block.shape) for _, block in terms if block is not None}
        if len(shapes) > 1:
            raise BadRecipe(f"block {name} has the shapes {sorted(shapes)} in these vectors")
        yield name, shapes.pop(), terms
