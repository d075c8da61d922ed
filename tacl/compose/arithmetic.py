"""theta0 + sum_t c_t tau_t: addition, negation, any subset, any coefficients (arXiv 2212.04089)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from tacl.compose.terms import Term, parse_recipe, parse_term
from tacl.errors import BadRecipe, BaseMismatch, MixedRegimes
from tacl.params import Params
from tacl.vectors import TaskVector

__all__ = [
    "Term",
    "block_terms",
    "composed",
    "parse_recipe",
    "parse_term",
    "require_additions",
    "require_one_model",
]


def composed(vectors: Sequence[TaskVector], coefficients: Sequence[float]) -> Params:
    """sum_t c_t tau_t, dense float32; a block that a vector does not have is zero in it.

    Vectors are added in the order of their digests, so that a recipe's model does not depend, not
    even in its last bit, on the order in which the recipe was written.
    """
    require_one_model(vectors)
    terms = zip(coefficients, vectors, strict=True)
    total: Params = {}
    for coefficient, vector in sorted(terms, key=lambda term: (term[1].digest, term[0])):
        _accumulate(total, coefficient, vector)
    return total


def block_terms(
    vectors: Sequence[TaskVector], coefficients: Sequence[float]
) -> Iterator[tuple[str, list[Tensor]]]:
    """(block, [c_t tau_t,b of every vector]), dense float32: what a merge reads, block by block.

    Zeros where a vector has no such block. In the order of the vectors' digests, as in `composed`.
    """
    require_one_model(vectors)
    pairs = zip(coefficients, vectors, strict=True)
    ordered = sorted(pairs, key=lambda term: (term[1].digest, term[0]))
    names = dict.fromkeys(name for _, vector in ordered for name in vector.blocks)
    for name in names:
        shapes = {tuple(v.blocks[name].shape) for _, v in ordered if name in v.blocks}
        if len(shapes) > 1:
            raise BadRecipe(f"block {name} has the shapes {sorted(shapes)} in these vectors")
        zeros = torch.zeros(shapes.pop())
        yield (
            name,
            [c * v.blocks[name].dense() if name in v.blocks else zeros for c, v in ordered],
        )


def require_additions(coefficients: Sequence[float], method: str) -> None:
    """Raises BadRecipe where a method that finds its own coefficients was given other than 1."""
    given = [c for c in coefficients if c != 1]
    if given:
        raise BadRecipe(
            f"{method} finds the coefficients itself and cannot keep {given}; leave signs and "
            "coefficients out, or use sum, grid, ties, tsv, iso or magmax, which keep them"
        )


def require_one_model(vectors: Sequence[TaskVector]) -> None:
    """Raises BadRecipe, BaseMismatch or MixedRegimes when the vectors do not add up."""
    if not vectors:
        raise BadRecipe("a composition needs at least one vector")
    first, *others = vectors
    for other in others:
        if other.base != first.base:
            raise BaseMismatch(
                f"{first.task} belongs to the base {first.base[:12]} and {other.task} to "
                f"{other.base[:12]}; vectors of different encoders do not add up"
            )
        if other.regime != first.regime:
            raise MixedRegimes(
                f"{first.task} is {first.regime} and {other.task} is {other.regime}; "
                "compose vectors of one regime"
            )


def _accumulate(total: Params, coefficient: float, vector: TaskVector) -> None:
    for name, block in vector.blocks.items():
        value = block.dense()
        if name not in total:
            total[name] = coefficient * value
        elif total[name].shape != value.shape:
            raise BadRecipe(
                f"block {name} of {vector.task} has shape {tuple(value.shape)}, "
                f"and {tuple(total[name].shape)} in the other vectors"
            )
        else:
            total[name].add_(value, alpha=coefficient)
