"""Piecewise constant functions: their derivative is zero, so they are applied to the primal."""

from __future__ import annotations

from typing import Any

from tacl.dual.tensor import DualTensor, primals, register

_CONSTANT = (
    "eq ne lt le gt ge __eq__ __ne__ __lt__ __le__ __gt__ __ge__ isnan isinf isfinite isneginf "
    "isposinf isclose allclose equal argmax argmin argsort argwhere nonzero count_nonzero sign "
    "sgn floor ceil round trunc fix long int short char byte bool __bool__ is_nonzero logical_not "
    "logical_and logical_or any all zeros_like ones_like full_like empty_like rand_like "
    "randn_like new_zeros new_ones new_full new_empty new_tensor result_type is_same_size"
)


@register(_CONSTANT)
def constant(func: Any, *args: Any, **kwargs: Any) -> Any:
    return func(*primals(args), **primals(kwargs))


@register("detach")
def detach(func: Any, input: DualTensor) -> Any:
    """The primal without its derivative, sharing its memory."""
    input.shared = True
    return input.primal.detach()
