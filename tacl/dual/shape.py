"""Functions linear in their first argument: reshapes, indexing, reductions, casts, averages.

Also padding, and pooling by maximum.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tacl.dual.tensor import (
    RULES,
    DualTensor,
    dual,
    primal,
    primals,
    register,
    same_memory,
    tangent,
)

_LINEAR = (
    "view reshape permute transpose swapaxes swapdims movedim flatten unflatten unsqueeze squeeze "
    "expand expand_as view_as reshape_as chunk split split_with_sizes tensor_split unbind narrow "
    "select index_select gather take_along_dim roll flip repeat repeat_interleave tile contiguous "
    "clone to float double half bfloat16 type_as type cpu cuda t tril triu diagonal diag "
    "broadcast_to sum mean cumsum __getitem__ ravel unfold fold positive __pos__ interpolate "
    "upsample avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
    "adaptive_avg_pool3d pixel_shuffle pixel_unshuffle channel_shuffle"
)

# A tangent's memory layout may differ from its primal's: it is copied where a view is impossible.
_OF_ANY_LAYOUT = {
    torch.Tensor.view: torch.Tensor.reshape,
    torch.Tensor.view_as: torch.Tensor.reshape_as,
}


@register(_LINEAR)
def linear_in_first(func: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    """f(x)' = f(x'). Of a dual among the other arguments, only the primal is used."""
    args, kwargs = primals(args), primals(kwargs)
    value = func(primal(input), *args, **kwargs)
    if not isinstance(input, DualTensor) or isinstance(value, str):  # x.type() is a name
        return value
    if func is torch.Tensor.view and value.dtype != input.dtype:
        raise NotImplementedError("view(dtype) reads the bits of a DualTensor")
    derivative = _OF_ANY_LAYOUT.get(func, func)(input.tangent, *args, **kwargs)
    if isinstance(value, (tuple, list)):
        return type(value)(_alias(input, v, d) for v, d in zip(value, derivative, strict=True))
    return _alias(input, value, derivative)


def _alias(source: DualTensor, value: Tensor, derivative: Tensor) -> Tensor:
    """The dual of one result; it and its source are marked as shared if they share memory."""
    if not (value.is_floating_point() or value.is_complex()):
        return value
    shared = same_memory(value, source.primal)
    source.shared = source.shared or shared
    return DualTensor(value, derivative, shared)


for _property in ("T", "mT", "H", "mH"):
    RULES[getattr(torch.Tensor, _property).__get__] = linear_in_first


@register("cat concat concatenate stack hstack vstack")
def joined(func: Any, tensors: Any, *args: Any, **kwargs: Any) -> Tensor:
    """Joining is linear in all its parts together: a plain part has a zero derivative."""
    value = func([primal(t) for t in tensors], *args, **kwargs)
    parts = [t.tangent if isinstance(t, DualTensor) else torch.zeros_like(t) for t in tensors]
    return dual(value, func(parts, *args, **kwargs))


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
