"""Normalisations: layer norm, batch norm in eval mode. Both are linear in (gamma, beta)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tacl.dual.selfadjoint import apply_symmetric
from tacl.dual.tensor import dual, primal, register, tangent

aten = torch.ops.aten


@register("layer_norm")
def layer_norm(
    func: Any,
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *args: Any,
) -> Tensor:
    """y' = gamma0 (x' - mean x' - xhat mean(xhat x')) / sigma + tau_gamma xhat + tau_beta.

    xhat(x) has a symmetric Jacobian, so its derivative is layer norm's own backward kernel.
    """
    x, tx, gamma = primal(input), tangent(input), primal(weight)
    t_gamma, t_beta = tangent(weight), tangent(bias)
    shape = list(normalized_shape)
    value, mean, rstd = torch.native_layer_norm(x, shape, gamma, primal(bias), eps)
    derivative = t_beta
    if t_gamma is not None:
        derivative = F.layer_norm(x, shape, t_gamma, t_beta, eps)
    if tx is None:
        return dual(value, derivative)

    def core(v: Tensor, *of_x: Tensor) -> Tensor:
        return aten.native_layer_norm_backward(
            v.contiguous(), of_x[0], shape, *of_x[1:], None, None, [True, False, False]
        )[0]

    # CPU kernels need a contiguous primal.
    along = apply_symmetric(core, tx, x.contiguous(), mean, rstd)
    return dual(value, _plus_product(derivative, along, gamma))


def _standardised(input: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Normalises each channel of a single row by its own mean and variance, as some convolutions do
    with their weights (arXiv 1903.10520)."""
    rows = input.flatten(2)
    unit = F.layer_norm(rows, rows.shape[-1:], eps=eps).reshape(input.shape)
    channels = (1, -1, *[1] * (input.dim() - 2))
    unit = unit if weight is None else unit * weight.view(channels)
    return unit if bias is None else unit + bias.view(channels)


@register("batch_norm")
def batch_norm(func: Any, *args: Any, **named: Any) -> Tensor:
    """In eval mode an affine map per channel, with frozen statistics; train mode is refused."""
    if func is torch.batch_norm:  # weight and bias come before the statistics
        if len(args) < 5 or named:
            return NotImplemented
        input, weight, bias, mean, var, *rest = args
        return _batch_norm(input, mean, var, weight, bias, *rest)
    return _batch_norm(*args, **named)


def _batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *args: Any,
) -> Tensor:
    if training and running_mean is None and input.dim() > 2 and input.shape[0] == 1:
        return _standardised(input, weight, bias, eps)
    if training or running_mean is None:
        raise NotImplementedError("batch norm in train mode: put the model into eval mode first")
    if tangent(running_mean) is not None or tangent(running_var) is not None:
        raise NotImplementedError("batch norm: the statistics are constants")
    x, tx, gamma = primal(input), tangent(input), primal(weight)
    t_gamma, t_beta = tangent(weight), tangent(bias)

    def affine(gamma: Tensor | None, beta: Tensor | None) -> Tensor:
        return F.batch_norm(x, running_mean, running_var, gamma, beta, False, momentum, eps)

    channels = (1, -1, *[1] * (x.dim() - 2))
    derivative = None if t_beta is None else t_beta.view(channels)
    if t_gamma is not None:
        derivative = affine(t_gamma, t_beta)
    if tx is not None:
        slope = (running_var + eps).rsqrt()
        slope = slope if gamma is None else slope * gamma
        derivative = _plus_product(derivative, tx, slope.view(channels))
    return dual(affine(gamma, primal(bias)), derivative)


@register("_weight_norm")
def weight_norm(func: Any, v: Any, g: Any, dim: int = 0) -> Tensor:
    """w = v g / |v|, with lengths over all axes but `dim`, or over all if that is -1."""
    axes = [axis for axis in range(v.dim()) if axis != dim]
    w = v * (g / (v * v).sum(axes, keepdim=True).sqrt())
    return dual(func(primal(v), primal(g), dim), tangent(w))  # the value by the model's own kernel


def _plus_product(c: Tensor | None, a: Tensor, b: Tensor | None) -> Tensor:
    """c + a b, where a missing c is zero and a missing b is one."""
    if b is None:
        return a if c is None else c + a
    return a * b if c is None else torch.addcmul(c, a, b)
