"""theta_b = start_b + sum_t lambda_tb tau_tb, and its gradient <dL/dtheta_b, tau_tb> for every t.

arXiv 2407.02880, equation 5. The vectors stay where they are, mapped from their files: one pass
over them makes the composed block, one pass its gradient. Beside them there is never more than
one composed copy, and no scaled vector is kept. Both passes are bound by memory bandwidth.

PEFT (section 5.3 there): the entries of a block are dealt at random into K parts, each with a
coefficient of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tacl.vectors.blocks import Block

Present = Block | None  # a vector need not have every block


def composed_block(
    start: Tensor,
    lambda_TK: Tensor,
    blocks: Sequence[Present],
    part: Tensor | None = None,
    known_TK: Sequence[Sequence[float]] | None = None,
) -> Tensor:
    """start + sum_t lambda_t tau_t of one block; differentiable in lambda_TK alone.

    `part` has the block's shape and says to which of K parts an entry belongs (uint8); without it
    K is 1. A vector whose coefficients are all zero is read for its gradient only. `known_TK` are
    the numbers of lambda_TK, where they were read from its device already, with those of others.
    """
    known_TK = lambda_TK.tolist() if known_TK is None else known_TK
    composed: Any = _Composed.apply(start, lambda_TK, tuple(blocks), part, known_TK)
    return composed


class _Composed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        start: Tensor,
        lambda_TK: Tensor,
        blocks: tuple[Present, ...],
        part: Tensor | None,
        known_TK: Sequence[Sequence[float]],
    ) -> Tensor:
        ctx.blocks, ctx.part, ctx.shape = blocks, part, lambda_TK.shape
        total = start.clone()
        for lambda_K, known_K, block in zip(lambda_TK, known_TK, blocks, strict=True):
            if block is None or not any(known_K):
                continue
            tau = block.dense().to(total, non_blocking=True)
            if part is None:
                total.add_(tau, alpha=known_K[0])
            else:
                total.addcmul_(lambda_K.to(total)[part.long()], tau)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (gradient,) = gradients
        lambda_TK = gradient.new_zeros(ctx.shape)
        for lambda_K, block in zip(lambda_TK, ctx.blocks, strict=True):
            if block is None:
                continue
            tau = block.dense().to(gradient, non_blocking=True)
            if ctx.part is None:
                lambda_K.copy_(torch.dot(gradient.flatten(), tau.flatten()))
            else:
                lambda_K.index_add_(0, ctx.part.flatten().long(), (gradient * tau).flatten())
        return None, lambda_TK, None, None, None


def random_parts(shape: Sequence[int], parts: int, seed: int) -> Tensor:
    """Every entry dealt to one of at most 256 parts: uint8 of this shape, the same for a seed."""
    random = torch.Generator().manual_seed(seed)
    return torch.randint(parts, tuple(shape), generator=random, dtype=torch.uint8)
