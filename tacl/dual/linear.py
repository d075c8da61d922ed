"""Functions linear in each argument: linear layers, convolutions, matrix products, embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tacl.dual.tensor import dual, primal, register, tangent, total


@register("linear")
def linear(func: Any, input: Any, weight: Any, bias: Any = None) -> Tensor:
    """y' = W0 x' + tau_W x + tau_b: with backward, 5 matrix products."""
    return _layer(F.linear, input, weight, bias, (-1,))


@register("conv1d conv2d conv3d")
def convolution(
    func: Any, input: Any, weight: Any, bias: Any = None, *args: Any, **kwargs: Any
) -> Tensor:
    """The same rule as for a linear layer, groups, strides and dilations included."""

    def convolve(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        return func(x, w, b, *args, **kwargs)

    return _layer(convolve, input, weight, bias, (-1, *[1] * (weight.dim() - 2)))


def _layer(
    apply: Callable[..., Tensor], input: Any, weight: Any, bias: Any, channels: tuple[int, ...]
) -> Tensor:
    """y = apply(x, W, b), bilinear in x and W; `channels` is b's shape in an output."""
    x, w = primal(input), primal(weight)
    tx, tw, tb = tangent(input), tangent(weight), tangent(bias)
    value = apply(x, w, primal(bias))
    if tx is None and tw is None:
        return dual(value, None if tb is None else tb.view(channels))
    through_input = None if tx is None else apply(tx, w, tb if tw is None else None)
    through_weight = None if tw is None else apply(x, tw, tb)
    return dual(value, total(through_input, through_weight))


@register("matmul bmm mm mv dot __matmul__")
def product(func: Any, input: Any, other: Any = None, **named: Any) -> Tensor:
    if other is None or named:
        return NotImplemented
    a, b, ta, tb = primal(input), primal(other), tangent(input), tangent(other)
    return dual(
        func(a, b), total(None if ta is None else func(ta, b), None if tb is None else func(a, tb))
    )


@register("__rmatmul__")
def right_product(func: Any, input: Any, other: Any) -> Tensor:
    return product(torch.matmul, other, input)


def _added_product(multiply: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """beta c + alpha a b, whose derivative is beta c' + alpha a'b + alpha ab'."""

    def rule(
        func: Any, input: Any, *factors: Any, beta: Any = 1, alpha: Any = 1, **named: Any
    ) -> Tensor:
        if len(factors) != 2 or named:
            return NotImplemented
        (a, ta), (b, tb) = ((primal(x), tangent(x)) for x in factors)
        derivative = tangent(input)
        if derivative is not None and beta != 1:
            derivative = beta * derivative
        for left, right in ((ta, b), (a, tb)):
            if left is None or right is None:
                continue
            if derivative is not None:
                derivative = func(derivative, left, right, alpha=alpha)
            else:
                derivative = multiply(left, right)
                derivative = derivative if alpha == 1 else alpha * derivative
        return dual(func(primal(input), a, b, beta=beta, alpha=alpha), derivative)

    return rule


register("addmm", _added_product(torch.mm))
register("baddbmm", _added_product(torch.bmm))


@register("embedding")
def embedding(func: Any, *args: Any, **named: Any) -> Tensor:
    """A look-up is linear in the table."""
    if func is torch.embedding:  # the same function with its arguments turned round
        return _look_up(func, *args, **named)
    return _embedding(*args, **named)


def _look_up(func: Any, weight: Any, indices: Tensor, *args: Any, **named: Any) -> Tensor:
    tw = tangent(weight)
    value = func(primal(weight), indices, *args, **named)
    return dual(value, None if tw is None else func(tw, indices, *args, **named))


def _embedding(
    input: Tensor,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    if max_norm is not None:
        raise NotImplementedError("embedding(max_norm=...) changes its table in place: refused")
    tw, rest = tangent(weight), (padding_idx, None, norm_type, scale_grad_by_freq, sparse)
    value = F.embedding(input, primal(weight), *rest)
    return dual(value, None if tw is None else F.embedding(input, tw, *rest))
