"""DualTensor: a tensor with a derivative, and the dispatch of torch functions to rules.

The primal is computed without a graph (theta0 and inputs need no gradient); the tangent carries
the autograd graph back to tau. A plain tensor stands for a dual with tangent zero, so nothing is
spent before the first trained block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Rule = Callable[..., Any]

RULES: dict[Any, Rule] = {}  # torch function -> rule(func, *args, **kwargs)
_NAMESPACES = (torch.Tensor, torch, F, torch._C._nn, torch.special)

# Questions about form, answered by the wrapper itself, which has the primal's form.
_FORM = {
    getattr(torch.Tensor, name).__get__
    for name in "shape dtype device layout ndim is_cuda is_cpu is_sparse is_quantized is_meta "
    "is_mkldnn is_mps is_xpu is_nested requires_grad is_leaf itemsize nbytes names".split()
    if hasattr(torch.Tensor, name)
} | {
    getattr(torch.Tensor, name)
    for name in "size dim numel nelement stride is_floating_point is_complex is_contiguous "
    "get_device element_size __len__ ndimension".split()
}

# Piecewise constant functions: their derivative is zero, so the primal alone answers.
_CONSTANT = (
    "eq ne lt le gt ge __eq__ __ne__ __lt__ __le__ __gt__ __ge__ isnan isinf isfinite isneginf "
    "isposinf argmax argmin argsort sign floor ceil round detach zeros_like ones_like full_like "
    "empty_like rand_like randn_like new_zeros new_ones new_full new_empty new_tensor allclose "
    "equal logical_not logical_and logical_or any all is_nonzero"
).split()


class DualTensor(torch.Tensor):
    """(primal, tangent), both of the same shape, dtype and device.

    `shared` is true for a dual that may share memory with another one: in-place functions are
    refused on it, since the other would not see the change.
    """

    primal: Tensor
    tangent: Tensor
    shared: bool

    @staticmethod
    def __new__(cls, primal: Tensor, tangent: Tensor, shared: bool = False) -> DualTensor:
        if primal.shape != tangent.shape:
            raise ValueError(f"primal {tuple(primal.shape)} and tangent {tuple(tangent.shape)}")
        dual = torch.Tensor._make_wrapper_subclass(  # pyright: ignore[reportAttributeAccessIssue]
            cls,
            primal.shape,
            strides=primal.stride(),
            dtype=primal.dtype,
            device=primal.device,
        )
        dual.primal, dual.tangent, dual.shared = primal, tangent, shared
        return dual

    def __repr__(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return f"DualTensor(primal={self.primal!r}, tangent={self.tangent!r})"

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Iterable[type], args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _FORM:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if kwargs.get("out") is not None:
            raise NotImplementedError(f"{_name(func)}(out=...) cannot carry a derivative")
        rule = RULES.get(func)
        if rule is not None:
            result = rule(func, *args, **kwargs)
            if result is not NotImplemented:
                return result
        if _is_in_place(func):
            return _in_place(func, args, kwargs)
        from tacl.dual.fallback import by_jvp

        return by_jvp(func, args, kwargs)

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Iterable[type], args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        raise NotImplementedError(f"{func} reached a DualTensor below the rules: no derivative")


def register(names: str, rule: Rule | None = None) -> Any:
    """Make `rule` answer every function of these names in torch, torch.Tensor and functional."""

    def put(rule: Rule) -> Rule:
        for name in names.split():
            found = [getattr(space, name) for space in _NAMESPACES if hasattr(space, name)]
            if not found:
                raise AttributeError(f"torch has no function named {name!r}")
            for func in found:
                RULES[func] = rule
        return rule

    return put if rule is None else put(rule)


def primal(x: Any) -> Any:
    """The value of a dual; anything else as it is."""
    return x.primal if isinstance(x, DualTensor) else x


def tangent(x: Any) -> Tensor | None:
    """The derivative of a dual; None, which is zero, for anything else."""
    return x.tangent if isinstance(x, DualTensor) else None


def primals(args: Any) -> Any:
    """`primal` of every element of (nested) tuples, lists and dictionaries."""
    if isinstance(args, (tuple, list)):
        return type(args)(primals(a) for a in args)
    if isinstance(args, dict):
        return {key: primals(a) for key, a in args.items()}
    return primal(args)


def total(*terms: Tensor | None) -> Tensor | None:
    """The sum of the terms that are not zero."""
    present = [t for t in terms if t is not None]
    if not present:
        return None
    result = present[0]
    for term in present[1:]:
        result = result + term
    return result


def dual(value: Tensor, derivative: Tensor | None) -> Tensor:
    """A dual of this value; the value alone where the derivative is zero."""
    if derivative is None:
        return value
    if derivative.shape != value.shape:  # a broadcast that the derivative did not take part in
        derivative = derivative.expand(value.shape)
    return DualTensor(value, derivative)


def _name(func: Any) -> str:
    return getattr(func, "__name__", str(func))


_AUGMENTED = {"__iadd__", "__isub__", "__imul__", "__itruediv__", "__idiv__", "__ipow__"}


def _is_in_place(func: Any) -> bool:
    name = _name(func)
    return name in _AUGMENTED or (name.endswith("_") and not name.endswith("__")) or name in {
        "__setitem__",
        "__set__",
        "__delitem__",
    }


def _out_of_place(name: str) -> Any:
    """The function that gives what the in-place function of this name would write."""
    plain = name.strip("_")[1:] if name in _AUGMENTED else name[:-1]
    plain = {"truediv": "div", "idiv": "div"}.get(plain, plain)
    for space in _NAMESPACES:
        if hasattr(space, plain) and getattr(space, plain) in RULES:
            return getattr(space, plain)
    return None


def _in_place(func: Any, args: tuple, kwargs: dict) -> DualTensor:
    """Compute out of place, then rebind: right for a dual that nothing else shares."""
    name, target = _name(func), args[0] if args else None
    other = _out_of_place(name)
    if not isinstance(target, DualTensor):
        raise NotImplementedError(f"{name}: a plain tensor cannot take up a derivative in place")
    if other is None:
        raise NotImplementedError(f"{name}: no in-place rule; use the out-of-place function")
    return rebind(target, other(*args, **kwargs), name)


def rebind(target: Any, result: Any, name: str) -> DualTensor:
    """Give `target` the value and derivative of `result`, as an in-place function would."""
    if not isinstance(target, DualTensor):
        raise NotImplementedError(f"{name}: a plain tensor cannot take up a derivative in place")
    if target.shared:
        raise NotImplementedError(
            f"{name}: this tensor shares memory with another (a view or a parameter), "
            "which would not see the change; use the out-of-place function"
        )
    if result.shape != target.shape or result.dtype != target.dtype:
        raise NotImplementedError(f"{name}: would change the shape or type of its target")
    target.primal = primal(result)
    derivative = tangent(result)
    target.tangent = torch.zeros_like(target.primal) if derivative is None else derivative
    return target


def _constant(func: Any, *args: Any, **kwargs: Any) -> Any:
    return func(*primals(args), **primals(kwargs))


register(" ".join(_CONSTANT), _constant)
