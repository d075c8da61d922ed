"""Elementwise functions: arithmetic, activations, dropout in eval mode."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tacl.dual.selfadjoint import apply_symmetric
from tacl.dual.tensor import dual, primal, primals, rebind, register, tangent, total

aten = torch.ops.aten


@register("add __add__ __radd__")
def add(func: Any, a: Any, b: Any, *, alpha: Any = 1) -> Tensor:
    value = torch.add(primal(a), primal(b), alpha=alpha)
    tb = tangent(b)
    return dual(value, total(tangent(a), tb if tb is None or alpha == 1 else alpha * tb))


@register("sub __sub__ subtract")
def sub(func: Any, a: Any, b: Any, *, alpha: Any = 1) -> Tensor:
    tb = tangent(b)
    derivative = total(tangent(a), None if tb is None else -alpha * tb)
    return dual(torch.sub(primal(a), primal(b), alpha=alpha), derivative)


@register("__rsub__ rsub")
def rsub(func: Any, a: Any, b: Any, *, alpha: Any = 1) -> Tensor:
    ta, tb = tangent(a), tangent(b)
    derivative = total(tb, None if ta is None else -alpha * ta)
    return dual(primal(b) - alpha * primal(a), derivative)


@register("mul __mul__ __rmul__ multiply")
def mul(func: Any, a: Any, b: Any) -> Tensor:
    """(ab)' = a'b + ab'."""
    ta, tb, pa, pb = tangent(a), tangent(b), primal(a), primal(b)
    value = torch.mul(pa, pb) if isinstance(pa, Tensor) else torch.mul(pb, pa)
    return dual(
        value, total(None if ta is None else ta * pb, None if tb is None else tb * pa)
    )


@register("div __truediv__ __div__ true_divide divide")
def div(func: Any, a: Any, b: Any, *, rounding_mode: str | None = None) -> Tensor:
    """(a/b)' = (a' - (a/b) b') / b."""
    if rounding_mode is not None:
        return NotImplemented
    ta, tb, pa, pb = tangent(a), tangent(b), primal(a), primal(b)
    value = pa / pb
    return dual(
        value, total(None if ta is None else ta / pb, None if tb is None else tb * (-value / pb))
    )


@register("__rtruediv__ __rdiv__")
def rdiv(func: Any, a: Any, b: Any) -> Tensor:
    return div(func, b, a)


@register("pow __pow__")
def power(func: Any, a: Any, exponent: Any) -> Tensor:
    """(x^n)' = n x^(n-1) x' for a number n."""
    if isinstance(exponent, Tensor) or not isinstance(a, Tensor):
        return NotImplemented
    pa, ta = primal(a), tangent(a)
    slope = exponent * torch.pow(pa, exponent - 1) if exponent != 0 else torch.zeros_like(pa)
    return dual(torch.pow(pa, exponent), None if ta is None else ta * slope)


@register("neg __neg__ negative")
def neg(func: Any, a: Any) -> Tensor:
    ta = tangent(a)
    return dual(-primal(a), None if ta is None else -ta)


def _through(name: str, slope: Any) -> None:
    """A function y = f(x) whose slope is a formula in x and y."""

    def rule(func: Any, x: Any) -> Tensor:
        value = func(primal(x))
        tx = tangent(x)
        return dual(value, None if tx is None else tx * slope(primal(x), value))

    register(name, rule)


_through("exp", lambda x, y: y)
_through("log", lambda x, y: x.reciprocal())
_through("sqrt", lambda x, y: 0.5 / y)
_through("rsqrt", lambda x, y: -0.5 * y / x)
_through("reciprocal", lambda x, y: -y * y)
_through("square", lambda x, y: 2 * x)
_through("abs", lambda x, y: x.sign())
_through("sin", lambda x, y: x.cos())
_through("cos", lambda x, y: -x.sin())
_through("erf", lambda x, y: 1.1283791670955126 * torch.exp(-x * x))


def _activation(names: str, kernel: Any) -> None:
    """y = f(x): `kernel(direction, x, y, *args)` is the framework's backward kernel."""

    def rule(func: Any, x: Any, *args: Any, inplace: bool = False, **kwargs: Any) -> Tensor:
        px, tx = primal(x), tangent(x)
        if args and isinstance(args[-1], bool):  # inplace, given by position
            inplace, args = args[-1], args[:-1]
        value = func(px, *args, **kwargs)
        if tx is None:
            return value
        derivative = apply_symmetric(lambda v: kernel(v, px, value, *args, **kwargs), tx)
        result = dual(value, derivative)
        return rebind(x, result, f"{func.__name__}(inplace)") if inplace else result

    register(names, rule)


def _gelu(v: Tensor, x: Tensor, y: Tensor, approximate: str = "none") -> Tensor:
    return aten.gelu_backward(v, x, approximate=approximate)


def _hardtanh(v: Tensor, x: Tensor, y: Tensor, min_val: float = -1, max_val: float = 1) -> Tensor:
    return aten.hardtanh_backward(v, x, min_val, max_val)


def _leaky(v: Tensor, x: Tensor, y: Tensor, negative_slope: float = 0.01) -> Tensor:
    return aten.leaky_relu_backward(v, x, negative_slope, False)


_activation("relu", lambda v, x, y: aten.threshold_backward(v, y, 0))
_activation("relu6", lambda v, x, y: aten.hardtanh_backward(v, x, 0.0, 6.0))
_activation("hardtanh", _hardtanh)
_activation("leaky_relu", _leaky)
_activation("gelu", _gelu)
_activation("silu", lambda v, x, y: aten.silu_backward(v, x))
_activation("sigmoid", lambda v, x, y: aten.sigmoid_backward(v, y))
_activation("tanh", lambda v, x, y: aten.tanh_backward(v, y))
_activation("hardswish", lambda v, x, y: aten.hardswish_backward(v, x))
_activation("hardsigmoid", lambda v, x, y: aten.hardsigmoid_backward(v, x))


@register("clamp clip")
def clamp(func: Any, x: Any, min: Any = None, max: Any = None) -> Tensor:
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        return NotImplemented
    px, tx = primal(x), tangent(x)
    inside = torch.ones_like(px, dtype=torch.bool)
    inside = inside if min is None else inside & (px >= min)
    inside = inside if max is None else inside & (px <= max)
    return dual(torch.clamp(px, min, max), None if tx is None else tx * inside)


@register("masked_fill")
def masked_fill(func: Any, x: Any, mask: Tensor, value: Any) -> Tensor:
    tx = tangent(x)
    if tangent(value) is not None:
        return NotImplemented
    filled = primal(x).masked_fill(mask, value)
    return dual(filled, None if tx is None else tx.expand(filled.shape).masked_fill(mask, 0))


@register("where")
def where(func: Any, condition: Tensor, *args: Any) -> Any:
    if not args or not isinstance(condition, Tensor):
        return NotImplemented
    a, b = args
    zero = torch.zeros((), dtype=torch.promote_types(_dtype(a), _dtype(b)))
    ta, tb = tangent(a), tangent(b)
    value = torch.where(condition, primal(a), primal(b))
    zero = zero.to(value.device)
    if ta is None and tb is None:
        return value
    return dual(
        value,
        torch.where(condition, zero if ta is None else ta, zero if tb is None else tb),
    )


def _dtype(x: Any) -> torch.dtype:
    return x.dtype if isinstance(x, Tensor) else torch.float32


@register("dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout")
def dropout(func: Any, x: Any, p: float = 0.5, training: bool = True, *args: Any, **kw: Any) -> Any:
    """The identity in eval mode; a random derivative is refused."""
    train = kw.get("train", training)
    if train and p > 0:
        raise NotImplementedError("dropout in train mode: put the model into eval mode first")
    return x


@register("softmax _softmax")
def softmax(func: Any, x: Any, *args: Any, **kwargs: Any) -> Tensor:
    """y' = y (x' - sum y x'): the backward kernel of softmax, whose Jacobian is symmetric."""
    y, tx = func(primal(x), *args, **kwargs), tangent(x)
    dim = kwargs.get("dim", args[0] if args else None)
    if tx is None:
        return y
    if dim is None:
        return NotImplemented
    return dual(y, softmax_tangent(tx.to(y.dtype), y, dim))


def softmax_tangent(direction: Tensor, y: Tensor, dim: int) -> Tensor:
    """J_softmax v, given the softmax y."""
    return apply_symmetric(
        lambda v: aten._softmax_backward_data(v.contiguous(), y, dim, y.dtype), direction
    )


@register("log_softmax")
def log_softmax(func: Any, x: Any, *args: Any, **kwargs: Any) -> Tensor:
    y, tx = func(primal(x), *args, **kwargs), tangent(x)
    dim = kwargs.get("dim", args[0] if args else None)
    if tx is None:
        return y
    if dim is None:
        return NotImplemented
    tx = tx.to(y.dtype)
    return dual(y, tx - (y.exp() * tx).sum(dim, keepdim=True))


@register("normalize")
def normalize(func: Any, x: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None):
    """x / |x|: u' = (x' - u (u . x')) / |x|."""
    if p != 2.0 or tangent(x) is None:
        return NotImplemented
    px, tx = primals((x, tangent(x)))
    length = px.norm(dim=dim, keepdim=True).clamp_min(eps)
    u = px / length
    along = torch.where(length > eps, (u * tx).sum(dim, keepdim=True), 0.0)
    return dual(u, (tx - u * along) / length)


__all__ = ["F", "softmax_tangent"]
