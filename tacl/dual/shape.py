"""Functions linear in their first argument: reshapes, indexing, reductions, casts, averages."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tacl.dual.tensor import RULES, DualTensor, dual, primal, primals, register

_LINEAR = (
    "view reshape permute transpose swapaxes swapdims movedim flatten unflatten unsqueeze squeeze "
    "expand expand_as view_as reshape_as chunk split split_with_sizes tensor_split unbind narrow "
    "select index_select gather take_along_dim roll flip repeat repeat_interleave tile contiguous "
    "clone to float double half bfloat16 type_as type cpu cuda t tril triu diagonal diag "
    "broadcast_to atleast_2d sum mean cumsum __getitem__ ravel unfold fold as_strided "
    "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
    "pixel_shuffle pixel_unshuffle channel_shuffle"
).split()


def _linear_in_first(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """f(x)' = f(x'). A dual among the other arguments only lends its form or its value."""
    args, kwargs = primals(args), primals(kwargs)
    value = func(primal(x), *args, **kwargs)
    if not isinstance(x, DualTensor):
        return value
    # A tangent may be laid out in another way than its primal: reshape where that was a view.
    same = torch.Tensor.reshape if func is torch.Tensor.view else func
    derivative = same(x.tangent, *args, **kwargs)
    if isinstance(value, (tuple, list)):
        return type(value)(_alias(x, v, d) for v, d in zip(value, derivative, strict=True))
    return _alias(x, value, derivative)


def _alias(source: DualTensor, value: Tensor, derivative: Tensor) -> Tensor:
    """The dual of one result, remembering whether it looks into the memory of its source."""
    if not value.is_floating_point():
        return value
    result = DualTensor(value, derivative)
    if value.untyped_storage().data_ptr() == source.primal.untyped_storage().data_ptr():
        result.shared = source.shared = True
    return result


register(" ".join(_LINEAR), _linear_in_first)

for _property in ("T", "mT", "H", "mH"):
    RULES[getattr(torch.Tensor, _property).__get__] = _linear_in_first


@register("interpolate upsample")
def interpolate(func: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    """Every mode of interpolation is linear in the picture."""
    return _linear_in_first(func, input, *args, **kwargs)


@register("cat concat concatenate stack hstack vstack")
def joined(func: Any, tensors: Any, *args: Any, **kwargs: Any) -> Tensor:
    """Joining is linear in all its parts together: a plain part has a zero derivative."""
    value = func([primal(t) for t in tensors], *args, **kwargs)
    if not any(isinstance(t, DualTensor) for t in tensors):
        return value
    parts = [t.tangent if isinstance(t, DualTensor) else torch.zeros_like(t) for t in tensors]
    return dual(value, func(parts, *args, **kwargs))
