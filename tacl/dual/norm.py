"""Normalisations: layer norm, batch norm in eval mode."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tacl.dual.selfadjoint import apply_symmetric
from tacl.dual.tensor import dual, primal, register, tangent, total

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
    derivative = None
    if tx is not None:
        # CPU kernels want a contiguous primal.
        xc = x.contiguous()
        core = apply_symmetric(
            lambda v: aten.native_layer_norm_backward(
                v.contiguous(), xc, shape, mean, rstd, None, None, [True, False, False]
            )[0],
            tx,
        )
        derivative = core if gamma is None else core * gamma
    if t_gamma is not None:
        xhat = torch.native_layer_norm(x, shape, None, None, eps)[0]
        derivative = total(derivative, xhat * t_gamma)
    return dual(value, total(derivative, t_beta))


@register("batch_norm")
def batch_norm(
    func: Any,
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
    """In eval mode an affine map per channel; frozen statistics."""
    if training or running_mean is None:
        raise NotImplementedError("batch norm in train mode: put the model into eval mode first")
    x, tx, gamma = primal(input), tangent(input), primal(weight)
    t_gamma, t_beta = tangent(weight), tangent(bias)
    channels = (1, -1, *[1] * (x.dim() - 2))
    mean, rstd = primal(running_mean), (primal(running_var) + eps).rsqrt()
    value = F.batch_norm(x, mean, primal(running_var), gamma, primal(bias), False, momentum, eps)
    scale = rstd if gamma is None else gamma * rstd
    derivative = None if tx is None else tx * scale.view(channels)
    if t_gamma is not None:
        xhat = (x - mean.view(channels)) * rstd.view(channels)
        derivative = total(derivative, xhat * t_gamma.view(channels))
    if t_beta is not None:
        derivative = total(derivative, t_beta.view(channels))
    return dual(value, derivative)
