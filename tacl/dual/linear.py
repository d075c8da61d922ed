"""Functions linear in each argument: linear layers, convolutions, matrix products, embeddings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tacl.dual.tensor import RULES, dual, primal, register, tangent, total

aten = torch.ops.aten
Pairs = Iterable[tuple[Tensor | None, Tensor | None]]


@register("linear")
def linear(func: Any, input: Any, weight: Any, bias: Any = None) -> Tensor:
    """y' = W0 x' + tau_W x + tau_b: 5 matrix products, with y and the backward pass."""

    def through_both(x: Tensor, tx: Tensor, w: Tensor, tw: Tensor, tb: Tensor | None) -> Tensor:
        rows, t_rows = (a.reshape(-1, a.shape[-1]) for a in (x, tx))
        sums = plus_products(tb, ((t_rows, w.t()), (rows, tw.t())))
        return sums.view(*x.shape[:-1], w.shape[0])  # pyright: ignore[reportOptionalMemberAccess]

    return _layer(F.linear, through_both, input, weight, bias, (-1,))


@register("conv1d conv2d conv3d")
def convolution(
    func: Any, input: Any, weight: Any, bias: Any = None, *args: Any, **kwargs: Any
) -> Tensor:
    """The same rule as for a linear layer, groups, strides and dilations included."""

    def convolve(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        return func(x, w, b, *args, **kwargs)

    def through_both(x: Tensor, tx: Tensor, w: Tensor, tw: Tensor, tb: Tensor | None) -> Tensor:
        form = _form(weight.dim() - 2, *args, **kwargs)
        if form is None or x.dim() != w.dim():  # padding is a string, or there is no batch axis
            return convolve(tx, w, tb).add_(convolve(x, tw, None))
        return _Convolved.apply(form, tx, tw, tb, x, w)  # pyright: ignore[reportReturnType]

    channels = (-1, *[1] * (weight.dim() - 2))
    return _layer(convolve, through_both, input, weight, bias, channels)


def _form(
    axes: int, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> tuple[Any, ...] | None:
    """The arguments after x, W, b of aten's convolution; None if padding is a string."""

    def each(value: Any) -> list[int]:
        values = [value] if isinstance(value, int) else list(value)
        return values * axes if len(values) == 1 else values

    if isinstance(padding, str):
        return None
    return each(stride), each(padding), each(dilation), False, [0] * axes, groups


class _Convolved(torch.autograd.Function):
    """W0 * x' + tau_W * x + tau_b, whose backward is that of an ordinary layer: W0^T * g, g * x.

    Unlike the sum of two convolutions, it does not keep x' for the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any, form: Any, tx: Tensor, tw: Tensor, tb: Tensor | None, x: Tensor, w: Tensor
    ) -> Tensor:
        ctx.form, ctx.bias_shape = form, None if tb is None else list(tb.shape)
        ctx.save_for_backward(x, w)
        along = aten.convolution(tx, w, tb, *form)
        return along.add_(aten.convolution(x, tw, None, *form))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, w = ctx.saved_tensors
        needed = list(ctx.needs_input_grad[1:4])
        found = aten.convolution_backward(gradients[0], x, w, ctx.bias_shape, *ctx.form, needed)
        return None, *found, None, None


def _layer(
    apply: Callable[..., Tensor],
    through_both: Callable[..., Tensor],
    input: Any,
    weight: Any,
    bias: Any,
    channels: tuple[int, ...],
) -> Tensor:
    """y = apply(x, W, b), bilinear in x and W; `channels` is b's shape in an output."""
    x, w = primal(input), primal(weight)
    tx, tw, tb = tangent(input), tangent(weight), tangent(bias)
    if tx is not None and tw is not None:
        derivative = through_both(x, tx, w, tw, tb)
    elif tx is not None:
        derivative = apply(tx, w, tb)
    elif tw is not None:
        derivative = apply(x, tw, tb)
    else:
        derivative = None if tb is None else tb.view(channels)
    return dual(apply(x, w, primal(bias)), derivative)


def plus_products(start: Tensor | None, pairs: Pairs, alpha: Any = 1) -> Tensor | None:
    """start + alpha sum of a b over pairs of (batches of) matrices; a None in a pair is zero.

    The matrix products accumulate the sum, so that it costs no pass of its own.
    """
    result, owned = start, False
    for a, b in pairs:
        if a is None or b is None:
            continue
        if result is None:
            result = a @ b if alpha == 1 else alpha * (a @ b)
        else:
            name = ("addmm" if a.dim() == 2 else "baddbmm") + ("_" if owned else "")
            result = getattr(result, name)(a, b, alpha=alpha)
        owned = True
    return result


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


@register("addmm baddbmm")
def added_product(
    func: Any, input: Any, *factors: Any, beta: Any = 1, alpha: Any = 1, **named: Any
) -> Tensor:
    """beta c + alpha a b, whose derivative is beta c' + alpha (a'b + ab')."""
    if len(factors) != 2 or named:
        return NotImplemented
    (a, ta), (b, tb) = ((primal(x), tangent(x)) for x in factors)
    tc = tangent(input)
    tc = tc if tc is None or beta == 1 else beta * tc
    value = func(primal(input), a, b, beta=beta, alpha=alpha)
    return dual(value, plus_products(tc, ((ta, b), (a, tb)), alpha))


@register("embedding")
def embedding(func: Any, *args: Any, **named: Any) -> Tensor:
    """A look-up is linear in the table."""
    if func is torch.embedding:  # the same function with its arguments swapped
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
    # `sparse` concerns the gradient alone, and optimizers of tau take dense ones.
    tw, rest = tangent(weight), (padding_idx, None, norm_type, scale_grad_by_freq)
    value = F.embedding(input, primal(weight), *rest)
    return dual(value, None if tw is None else F.embedding(input, tw, *rest))


def embedding_bag(func: Any, input: Tensor, weight: Any, *, mode: str, **named: Any) -> Tensor:
    """Sums and means of looked-up rows are linear in the table; largest entries are not."""
    named = {**named, "mode": mode, "sparse": False}  # as in `_embedding`
    if named["max_norm"] is not None:
        raise NotImplementedError("embedding_bag(max_norm=...) changes its table in place: refused")
    if mode == "max" or tangent(named["per_sample_weights"]) is not None:
        return NotImplemented
    tw = tangent(weight)
    value = func(input, primal(weight), **named)
    return dual(value, None if tw is None else func(input, tw, **named))


RULES[F.embedding_bag] = embedding_bag  # torch.embedding_bag also returns numbers of rows
