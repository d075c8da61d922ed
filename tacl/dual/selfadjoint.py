"""Functions whose Jacobian is symmetric: J = J^T.

For elementwise functions, softmax and the core of layer norm, the derivative along a direction
equals the backward kernel applied to that direction. So the framework's own fused backward
kernel serves three times: forward-mode, and (J being constant in the tangent) its transpose.
Nothing but the primal is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, direction: Tensor, kernel: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.kernel = kernel
        return kernel(direction)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.kernel(gradients[0]), None


def apply_symmetric(kernel: Callable[[Tensor], Tensor], direction: Tensor) -> Tensor:
    """J v by `kernel`, which must be linear and its own transpose; differentiable in v."""
    return _Apply.apply(direction.contiguous(), kernel)  # pyright: ignore[reportReturnType]
