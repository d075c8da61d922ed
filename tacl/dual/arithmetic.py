"""Arithmetic, powers, selection, and functions whose slope is a short formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tacl.dual.selfadjoint import apply_symmetric
from tacl.dual.tensor import dual, primal, register, tangent, total


def _sum(ta: Tensor | None, tb: Tensor | None, alpha: Any) -> Tensor | None:
    """ta + alpha tb, where None is zero."""
    if tb is None:
        return ta
    if ta is None:
        return tb if alpha == 1 else alpha * tb
    return torch.add(ta, tb, alpha=alpha)


@register("add __add__ __radd__")
def add(func: Any, input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    value = torch.add(primal(input), primal(other), alpha=alpha)
    return dual(value, _sum(tangent(input), tangent(other), alpha))


@register("sub __sub__ subtract")
def sub(func: Any, input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    value = torch.sub(primal(input), primal(other), alpha=alpha)
    return dual(value, _sum(tangent(input), tangent(other), -alpha))


@register("__rsub__ rsub")
def rsub(func: Any, input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    value = torch.rsub(primal(input), primal(other), alpha=alpha)
    return dual(value, _sum(tangent(other), tangent(input), -alpha))


@register("mul __mul__ __rmul__ multiply")
def mul(func: Any, input: Any, other: Any) -> Tensor:
    """(ab)' = a'b + ab'."""
    ta, tb, a, b = tangent(input), tangent(other), primal(input), primal(other)
    return dual(a * b, total(None if ta is None else ta * b, None if tb is None else a * tb))


@register("div __truediv__ __div__ true_divide divide")
def div(func: Any, input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """(a/b)' = (a' - (a/b) b') / b."""
    if rounding_mode is not None:
        return NotImplemented
    ta, tb, a, b = tangent(input), tangent(other), primal(input), primal(other)
    value = a / b
    return dual(
        value, total(None if ta is None else ta / b, None if tb is None else tb * (-value / b))
    )


@register("__rtruediv__ __rdiv__")
def rdiv(func: Any, input: Any, other: Any) -> Tensor:
    return div(func, other, input)


@register("pow __pow__")
def power(func: Any, input: Any, exponent: Any) -> Tensor:
    """(x^n)' = n x^(n-1) x' for a number n."""
    if isinstance(exponent, Tensor) or not isinstance(input, Tensor):
        return NotImplemented
    x, tx = primal(input), tangent(input)
    slope = exponent * torch.pow(x, exponent - 1) if exponent != 0 else torch.zeros_like(x)
    return dual(torch.pow(x, exponent), None if tx is None else tx * slope)


def _through(name: str, slope: Callable[[Tensor, Tensor], Tensor | float]) -> None:
    """Registers a function y = f(x) whose slope is a formula in x and y."""

    def rule(func: Any, input: Any) -> Tensor:
        y, tx = func(primal(input)), tangent(input)
        return dual(y, None if tx is None else tx * slope(primal(input), y))

    register(name, rule)


_through("neg __neg__ negative", lambda x, y: -1)
_through("exp", lambda x, y: y)
_through("log", lambda x, y: x.reciprocal())
_through("sqrt", lambda x, y: 0.5 / y)
_through("rsqrt", lambda x, y: -0.5 * y / x)
_through("reciprocal", lambda x, y: -y * y)
_through("square", lambda x, y: 2 * x)
_through("abs __abs__ absolute", lambda x, y: x.sign())
_through("sin", lambda x, y: x.cos())
_through("cos", lambda x, y: -x.sin())
_through("erf", lambda x, y: 1.1283791670955126 * torch.exp(-x * x))


@register("clamp clip")
def clamp(func: Any, input: Any, min: Any = None, max: Any = None) -> Tensor:
    """The derivative is kept where x is strictly between the bounds, and is 0 elsewhere."""
    tx = tangent(input)
    if isinstance(min, Tensor) or isinstance(max, Tensor) or tx is None:
        return NotImplemented
    low, high = -math.inf if min is None else min, math.inf if max is None else max
    slope = apply_symmetric(
        lambda v, x: torch.ops.aten.hardtanh_backward(v, x, low, high), tx, primal(input)
    )
    return dual(torch.clamp(primal(input), min, max), slope)


@register("masked_fill")
def masked_fill(func: Any, input: Any, mask: Tensor, value: Any) -> Tensor:
    if tangent(value) is not None:
        return NotImplemented
    filled, tx = primal(input).masked_fill(mask, value), tangent(input)
    return dual(filled, None if tx is None else tx.masked_fill(mask, 0))


@register("where")
def where(func: Any, *args: Any, **named: Any) -> Any:
    """torch.where(condition, a, b), or a.where(condition, b)."""
    if len(args) != 3 or named:
        return NotImplemented
    a, condition, b = args if func is torch.Tensor.where else (args[1], args[0], args[2])
    ta, tb = tangent(a), tangent(b)
    value = torch.where(condition, primal(a), primal(b))
    chosen = torch.where(condition, 0.0 if ta is None else ta, 0.0 if tb is None else tb)
    return dual(value, chosen)
