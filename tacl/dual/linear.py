"""Functions linear in each argument: linear layers, convolutions, matrix products, embeddings."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tacl.dual.tensor import dual, primal, register, tangent, total


@register("linear")
def linear(func: Any, input: Any, weight: Any, bias: Any = None) -> Tensor:
    """y' = W0 x' + tau_W x + tau_b: with backward, 5 matrix products (method.md section 5)."""
    x, w = primal(input), primal(weight)
    tx, tw, tb = tangent(input), tangent(weight), tangent(bias)
    value = F.linear(x, w, primal(bias))
    if tx is None and tw is None:
        return dual(value, tb)
    through_input = None if tx is None else F.linear(tx, w, tb if tw is None else None)
    through_weight = None if tw is None else F.linear(x, tw, tb)
    return dual(value, total(through_input, through_weight))


@register("conv1d conv2d conv3d")
def convolution(func: Any, input: Any, weight: Any, bias: Any = None, *args: Any, **kwargs: Any):
    """The same rule as for a linear layer, groups, strides and dilations included."""
    x, w = primal(input), primal(weight)
    tx, tw, tb = tangent(input), tangent(weight), tangent(bias)
    value = func(x, w, primal(bias), *args, **kwargs)
    if tx is None and tw is None:
        return dual(value, None if tb is None else tb.view(-1, *[1] * (w.dim() - 2)))
    through_input = (
        None if tx is None else func(tx, w, tb if tw is None else None, *args, **kwargs)
    )
    through_weight = None if tw is None else func(x, tw, tb, *args, **kwargs)
    return dual(value, total(through_input, through_weight))


@register("matmul bmm mm mv dot __matmul__")
def product(func: Any, a: Any, b: Any, **kwargs: Any) -> Tensor:
    ta, tb, pa, pb = tangent(a), tangent(b), primal(a), primal(b)
    return dual(
        func(pa, pb, **kwargs),
        total(None if ta is None else func(ta, pb), None if tb is None else func(pa, tb)),
    )


@register("__rmatmul__")
def right_product(func: Any, a: Any, b: Any) -> Tensor:
    return product(torch.matmul, b, a)


def _added_product(multiply: Any) -> Any:
    def rule(func: Any, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
        ta, tb, tc = tangent(a), tangent(b), tangent(c)
        pa, pb = primal(a), primal(b)
        value = func(primal(c), pa, pb, beta=beta, alpha=alpha)
        bilinear = total(
            None if ta is None else multiply(ta, pb), None if tb is None else multiply(pa, tb)
        )
        if bilinear is None:
            return dual(value, None if tc is None else beta * tc)
        if tc is None:
            return dual(value, alpha * bilinear)
        return dual(value, beta * tc + alpha * bilinear)

    return rule


register("addmm", _added_product(torch.mm))
register("baddbmm", _added_product(torch.bmm))


@register("embedding")
def embedding(
    func: Any,
    input: Tensor,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    *args: Any,
    **kwargs: Any,
) -> Tensor:
    """A look-up is linear in the table."""
    if max_norm is not None:
        raise NotImplementedError("embedding(max_norm=...) changes its table in place: refused")
    if isinstance(primal(input), Tensor) and primal(input).is_floating_point():
        # torch.embedding takes (weight, indices): the same function, arguments turned round.
        input, weight, padding_idx = weight, input, None
    tw = tangent(weight)
    value = F.embedding(input, primal(weight), padding_idx)
    return dual(value, None if tw is None else F.embedding(input, tw, padding_idx))
