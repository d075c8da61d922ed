"""Pooling and padding."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from tacl.dual.tensor import dual, primal, register, tangent


@register("max_pool2d max_pool2d_with_indices")
def max_pool2d(func: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    """The derivative follows the largest entry of each window."""
    if kwargs.pop("return_indices", False) or func is F.max_pool2d_with_indices:
        return NotImplemented
    if len(args) == 6:  # kernel, stride, padding, dilation, ceil_mode, return_indices
        return NotImplemented
    value, places = F.max_pool2d(primal(input), *args, **kwargs, return_indices=True)
    derivative = tangent(input)
    if derivative is None:
        return value
    taken = derivative.flatten(-2).gather(-1, places.flatten(-2))
    return dual(value, taken.view(value.shape))


@register("pad")
def pad(func: Any, input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    """Padding with a constant adds a constant: the derivative is padded with zeros."""
    derivative = tangent(input)
    filled = F.pad(primal(input), pad, mode, value)
    if derivative is None:
        return filled
    return dual(filled, F.pad(derivative, pad, mode, None if value is None else 0.0))
