"""Activations, softmax, normalisation to length 1, and dropout in eval mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tacl.dual.in_place import rebind
from tacl.dual.selfadjoint import apply_symmetric
from tacl.dual.tensor import dual, name_of, primal, register, tangent

aten = torch.ops.aten


def _activation(names: str, kernel: Callable[..., Tensor], *, keeps: str) -> None:
    """Registers y = f(x): `kernel(direction, x or y, *args)` is the framework's backward kernel,
    and `keeps` says which of x and y it takes."""

    def rule(func: Any, input: Any, *args: Any, inplace: bool = False, **kwargs: Any) -> Tensor:
        if args and isinstance(args[-1], bool):  # inplace, given by position
            inplace, args = args[-1], args[:-1]
        x, tx = primal(input), tangent(input)
        y = func(x, *args, **kwargs)
        if tx is None:
            return y
        derivative = apply_symmetric(
            lambda v, kept: kernel(v, kept, *args, **kwargs), tx, x if keeps == "x" else y
        )
        result = dual(y, derivative)
        return rebind(input, result, f"{name_of(func)}(inplace=True)") if inplace else result

    register(names, rule)


def _gelu(v: Tensor, x: Tensor, approximate: str = "none") -> Tensor:
    return aten.gelu_backward(v, x, approximate=approximate)


def _hardtanh(v: Tensor, y: Tensor, min_val: float = -1, max_val: float = 1) -> Tensor:
    """From y, which is strictly between the bounds where x is; the next layer keeps y anyway."""
    return aten.hardtanh_backward(v, y, min_val, max_val)


def _leaky(v: Tensor, x: Tensor, negative_slope: float = 0.01) -> Tensor:
    return aten.leaky_relu_backward(v, x, negative_slope, False)


_activation("relu", lambda v, y: aten.threshold_backward(v, y, 0), keeps="y")
_activation("sigmoid", aten.sigmoid_backward, keeps="y")
_activation("tanh", aten.tanh_backward, keeps="y")
_activation("relu6", lambda v, y: aten.hardtanh_backward(v, y, 0.0, 6.0), keeps="y")
_activation("hardtanh", _hardtanh, keeps="y")
_activation("leaky_relu", _leaky, keeps="x")
_activation("gelu", _gelu, keeps="x")
_activation("silu", aten.silu_backward, keeps="x")
_activation("hardswish", aten.hardswish_backward, keeps="x")
_activation("hardsigmoid", aten.hardsigmoid_backward, keeps="x")


@register("glu")
def glu(func: Any, input: Any, dim: int = -1) -> Tensor:
    """a sigmoid(b), for the halves a and b; the derivative of torch's own has no gradient."""
    a, b = input.chunk(2, dim)
    return a * b.sigmoid()


def softmax_tangent(direction: Tensor, y: Tensor, dim: int) -> Tensor:
    """J_softmax v = y (v - sum y v), given the softmax y."""
    return apply_symmetric(
        lambda v, y: aten._softmax_backward_data(v.contiguous(), y, dim, y.dtype), direction, y
    )


@register("softmax _softmax")
def softmax(func: Any, input: Any, *args: Any, **kwargs: Any) -> Tensor:
    dim = kwargs.get("dim", args[0] if args else None)
    if dim is None:
        return NotImplemented
    y, tx = func(primal(input), *args, **kwargs), tangent(input)
    return dual(y, None if tx is None else softmax_tangent(tx.to(y.dtype), y, dim))


@register("log_softmax _log_softmax")
def log_softmax(func: Any, input: Any, *args: Any, **kwargs: Any) -> Tensor:
    """y' = x' - sum softmax(x) x'."""
    dim = kwargs.get("dim", args[0] if args else None)
    tx = tangent(input)
    if dim is None or tx is None:
        return NotImplemented
    y = func(primal(input), *args, **kwargs)
    tx = tx.to(y.dtype)
    return dual(y, tx - (y.exp() * tx).sum(dim, keepdim=True))


@register("normalize")
def normalize(
    func: Any, input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None
) -> Tensor:
    """u = x / |x|: u' = (x' - u (u . x')) / |x|; a length below eps is replaced by the constant
    eps."""
    tx = tangent(input)
    if p != 2.0 or out is not None or tx is None:
        return NotImplemented
    length = primal(input).norm(dim=dim, keepdim=True).clamp_min(eps)
    u = primal(input) / length
    along = torch.where(length > eps, (u * tx).sum(dim, keepdim=True), 0.0)
    return dual(u, (tx - u * along) / length)


@register(
    "dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout feature_alpha_dropout"
)
def dropout(
    func: Any, input: Any, p: float = 0.5, training: bool = True, *args: Any, **named: Any
) -> Any:
    """The identity in eval mode; refused in train mode, where the derivative would be random."""
    if named.get("train", training) and p > 0:
        raise NotImplementedError("dropout in train mode: put the model into eval mode first")
    return input
