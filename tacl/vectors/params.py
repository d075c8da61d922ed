"""Algebra of named tensors (theta0, task vectors, gradients), by name and never by position.

Operations on several arguments refuse names or shapes that differ, so that a vector can never be
silently added to the wrong block.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Params = dict[str, Tensor]


def require_same_blocks(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> None:
    """Raises ValueError with the blocks in which the two differ, if any."""
    if left.keys() != right.keys():
        only_left, only_right = (
            sorted(left.keys() - right.keys()),
            sorted(right.keys() - left.keys()),
        )
        raise ValueError(f"different blocks: only left {only_left}, only right {only_right}")
    shapes = {n: (tuple(left[n].shape), tuple(right[n].shape)) for n in left}
    differing = {n: pair for n, pair in sorted(shapes.items()) if pair[0] != pair[1]}
    if differing:
        raise ValueError(f"different shapes (left, right): {differing}")


def scale(factor: float, params: Mapping[str, Tensor]) -> Params:
    return {name: factor * value for name, value in params.items()}


def combine(terms: Sequence[tuple[float, Mapping[str, Tensor]]]) -> Params:
    """sum_i c_i p_i, added in the given order; at least one term."""
    if not terms:
        raise ValueError("a combination needs at least one term")
    (factor, first), *rest = terms
    total = scale(factor, first)
    for factor, params in rest:
        require_same_blocks(total, params)
        for name, value in params.items():
            total[name].add_(value, alpha=factor)
    return total


def norm(params: Mapping[str, Tensor]) -> float:
    """Euclidean norm over all blocks together, accumulated in float64."""
    blocks = (value.flatten().double() for value in params.values())
    return math.sqrt(sum(torch.dot(block, block).item() for block in blocks))


def digest(params: Mapping[str, Tensor]) -> str:
    """sha256 over (name, dtype, shape, bytes) of every block in the order of the names; hex."""
    sha = hashlib.sha256()
    for name in sorted(params):
        value = params[name].detach().cpu().contiguous()
        sha.update(f"{name}\0{value.dtype}\0{tuple(value.shape)}\0".encode())
        sha.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()
