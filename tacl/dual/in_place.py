"""In-place functions: computed correctly, or refused.

The function runs out of place, and the dual, the same Python object, takes the result. That is
correct where no other tensor shares the dual's memory. Anywhere else it is refused, because the
other tensor would silently keep the old value.
"""

from __future__ import annotations

from typing import Any

import torch

from tacl.dual.tensor import NAMESPACES, RULES, DualTensor, name_of, primal, tangent

# x += y and the like: each writes the result of __add__ and the like.
_OPERATORS = "add sub mul truediv div pow floordiv mod and or xor lshift rshift"
_AUGMENTED = {f"__i{name}__" for name in _OPERATORS.split()}


def is_in_place(func: Any) -> bool:
    """Whether `func` is named f_, torch's convention, or is Python's x op= y, x[i] = y, x.p = y."""
    name = getattr(func, "__name__", "")
    if name in _AUGMENTED or name in ("__setitem__", "__set__"):
        return True
    return name.endswith("_") and not name.endswith("__")


def replaced(func: Any, args: tuple, kwargs: dict) -> DualTensor:
    """Computes out of place, then gives the first argument the result.

    Raises NotImplementedError where that would differ from the in-place function.
    """
    name = name_of(func)
    target = args[0] if args else None
    require_dual(target, name)
    if any(other is target for other in (*args[1:], *kwargs.values())):
        raise NotImplementedError(f"{name}: reads the memory that it writes")
    compute = _out_of_place(name)
    if compute is None:
        raise NotImplementedError(f"{name}: no in-place rule; use the out-of-place function")
    return rebind(target, compute(*args, **kwargs), name)


def rebind(target: Any, result: Any, name: str) -> DualTensor:
    """Gives `target` the value and derivative of `result`, which nothing else may hold."""
    require_dual(target, name)
    if target.shared:
        raise NotImplementedError(
            f"{name}: this tensor shares memory with another (a view or a parameter), "
            "which would not see the change; use the out-of-place function"
        )
    value, derivative = primal(result), tangent(result)
    if value.shape != target.shape or value.dtype != target.dtype:
        raise NotImplementedError(f"{name}: would change the shape or type of its target")
    if value.stride() != target.stride():  # an in-place function keeps the layout
        value = torch.empty_strided(
            value.shape, target.stride(), dtype=value.dtype, device=value.device
        ).copy_(value)
    target.primal = value
    target.tangent = torch.zeros_like(value) if derivative is None else derivative
    return target


def require_dual(target: Any, name: str) -> None:
    if not isinstance(target, DualTensor):
        raise NotImplementedError(f"{name}: a plain tensor cannot take up a derivative in place")


def _out_of_place(name: str) -> Any:
    """The out-of-place counterpart of the in-place function of this name, if it has a rule."""
    plain = f"__{name[3:]}" if name in _AUGMENTED else name.removesuffix("_")
    spaces = (space for space in NAMESPACES if hasattr(space, plain))
    return next((f for f in (getattr(space, plain) for space in spaces) if f in RULES), None)
