"""Pooling by maximum, and padding. (Pooling by average is linear: shape.py.)"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from tacl.dual.tensor import dual, primal, register, tangent


@register("max_pool2d")
def max_pool2d(func: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    """The derivative follows the largest entry of each window."""
    tx = tangent(input)
    if kwargs.pop("return_indices", False) or len(args) == 6 or tx is None:  # args[5] is that too
        return NotImplemented
    value, places = F.max_pool2d(primal(input), *args, **kwargs, return_indices=True)
    return dual(value, tx.flatten(-2).gather(-1, places.flatten(-2)).view(value.shape))


@register("pad")
def pad(func: Any, input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    """Padding with a constant adds a constant: the derivative is padded with zeros."""
    filled, tx = F.pad(primal(input), pad, mode, value), tangent(input)
    return dual(filled, None if tx is None else F.pad(tx, pad, mode))
