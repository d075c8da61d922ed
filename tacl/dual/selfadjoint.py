"""Functions whose Jacobian is symmetric: J = J^T.

For elementwise functions, softmax and the core of layer norm, the derivative along a direction
equals the backward kernel applied to that direction. So the framework's own fused backward kernel
also computes the forward-mode derivative and, as J is constant in the tangent, its transpose. Only
what the kernel reads of the primal is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernel: Callable[..., Tensor], v: Tensor, *constants: Tensor) -> Tensor:
        ctx.kernel = kernel
        ctx.save_for_backward(*constants)  # autograd then notices a change in place
        return kernel(v, *constants)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        constants = ctx.saved_tensors
        return None, ctx.kernel(gradients[0], *constants), *(None for _ in constants)


def apply_symmetric(kernel: Callable[..., Tensor], v: Tensor, *constants: Tensor) -> Tensor:
    """J v = kernel(v, *constants), where J is its own transpose; differentiable in v."""
    return _Apply.apply(kernel, v, *constants)  # pyright: ignore[reportReturnType]
