"""DualTensor: a tensor with a derivative, and the dispatch of torch functions to rules.

The primal is computed without a graph (theta0 and inputs need no gradient); the tangent carries
the autograd graph back to tau. A plain tensor stands for a dual with tangent zero, so layers before
the first trained block cost nothing extra.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Rule = Callable[..., Any]

RULES: dict[Any, Rule] = {}  # torch function -> rule(func, *args, **kwargs)
NAMESPACES = (
    torch.Tensor,
    torch,
    F,
    torch._C._nn,  # pyright: ignore[reportAttributeAccessIssue]
    torch.special,
)

# Properties and methods about the form, which the wrapper itself answers: it has the primal's form.
_PROPERTIES = (
    "shape dtype device layout ndim is_cuda is_cpu is_sparse is_quantized is_meta is_mkldnn "
    "is_mps is_xpu is_nested requires_grad is_leaf itemsize nbytes"
)
_QUESTIONS = (
    "size dim numel nelement stride is_floating_point is_complex is_contiguous get_device "
    "element_size is_signed is_conj is_neg is_inference __len__ ndimension"
)
_FORM = {
    getattr(torch.Tensor, name).__get__
    for name in _PROPERTIES.split()
    if hasattr(torch.Tensor, name)  # some releases have more of them
} | {
    getattr(space, name)
    for name in _QUESTIONS.split()
    for space in (torch.Tensor, torch)
    if hasattr(space, name)
}

_FIRST = ("input", "query", "tensors", "tensor")  # torch's names of a first argument


RECORDING = ContextVar("recording", default=False)  # whether a pass is for a gradient of tau


def _with_gradient(func: Any, result: Any) -> Any:
    """Returns `result`; raises NotImplementedError if tau's gradient would be lost here."""
    if RECORDING.get() and not torch.is_grad_enabled():
        parts = result if isinstance(result, tuple | list) else (result,)
        if any(isinstance(one, DualTensor) for one in parts):
            raise NotImplementedError(
                f"{name_of(func)} inside torch.no_grad, or a Python autograd.Function, of the "
                "encoder: the gradient of tau would be lost there; detach what needs none"
            )
    return result


class DualTensor(torch.Tensor):
    """(primal, tangent), both of the same shape, dtype and device.

    `shared` is true for a dual that may share memory with another tensor: in-place functions are
    refused on it, since the other would not see the change.

    Raises NotImplementedError for values that are not real floating point numbers.
    """

    primal: Tensor
    tangent: Tensor
    shared: bool

    @staticmethod
    def __new__(cls, primal: Tensor, tangent: Tensor, shared: bool = True) -> DualTensor:
        if primal.shape != tangent.shape or primal.dtype != tangent.dtype:
            raise ValueError(
                f"primal {primal.dtype}{list(primal.shape)} and "
                f"tangent {tangent.dtype}{list(tangent.shape)} differ"
            )
        if not primal.is_floating_point():
            raise NotImplementedError(f"derivatives of {primal.dtype} values have no rules")
        return torch.Tensor._make_wrapper_subclass(  # pyright: ignore[reportAttributeAccessIssue]
            cls,
            primal.shape,
            strides=primal.stride(),
            dtype=primal.dtype,
            device=primal.device,
        )

    def __init__(self, primal: Tensor, tangent: Tensor, shared: bool = True) -> None:
        self.primal, self.tangent, self.shared = primal, tangent, shared

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
            raise NotImplementedError(f"{name_of(func)}(out=...) cannot carry a derivative")
        rule = RULES.get(func)
        if rule is not None:
            result = _answer(rule, func, args, kwargs)
            if result is not NotImplemented:
                return _with_gradient(func, result)
        from tacl.dual.fallback import by_jvp
        from tacl.dual.in_place import is_in_place, replaced

        if is_in_place(func):
            return replaced(func, args, kwargs)
        return _with_gradient(func, by_jvp(func, args, kwargs))

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Iterable[type], args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        raise NotImplementedError(f"{func} reached a DualTensor below the rules: no derivative")


def _answer(rule: Rule, func: Any, args: tuple, kwargs: dict) -> Any:
    """The rule's result; NotImplemented where it cannot tell which argument is the first."""
    if not args:
        first = next((name for name in _FIRST if name in kwargs), None)
        if first is None:
            return NotImplemented
        args, kwargs = (kwargs[first],), {k: v for k, v in kwargs.items() if k != first}
    return rule(func, *args, **kwargs)


def register(names: str, rule: Rule | None = None, table: dict[Any, Rule] = RULES) -> Any:
    """Registers `rule` for every function of these names in NAMESPACES.

    A rule returns NotImplemented for a form of call that it does not support.
    """

    def put(rule: Rule) -> Rule:
        for name in names.split():
            for func in named(name):
                table[func] = rule
        return rule

    return put if rule is None else put(rule)


def named(name: str) -> list[Any]:
    """The functions of this name; AttributeError when there are none."""
    spaces = (torch.Tensor,) if name.startswith("__") else NAMESPACES  # modules have __eq__ too
    found = (getattr(space, name, None) for space in spaces)
    functions = [f for f in found if callable(f)]  # torch.float is a function of tensors only
    if not functions:
        raise AttributeError(f"torch has no function named {name!r}")
    return functions


def primal(x: Any) -> Any:
    """The value of a dual; anything else unchanged."""
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
    return sum(present[1:], present[0]) if present else None


def dual(value: Tensor, derivative: Tensor | None) -> Tensor:
    """A dual of a value that nothing else holds; the plain value if the derivative is None."""
    if derivative is None:
        return value
    if derivative.dtype != value.dtype:  # the other argument was of higher precision
        derivative = derivative.to(value.dtype)
    if derivative.shape != value.shape:  # a broadcast that the derivative did not take part in
        derivative = derivative.expand(value.shape)
    return DualTensor(value, derivative, shared=False)


def same_memory(a: Tensor, b: Tensor) -> bool:
    """Whether two plain tensors share one storage."""
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def name_of(func: Any) -> str:
    name = getattr(func, "__name__", str(func))
    if name in ("__get__", "__set__"):  # a property: its own name says more
        return getattr(getattr(func, "__self__", None), "__name__", name)
    return name
