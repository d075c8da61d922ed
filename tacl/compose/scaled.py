"""The encoder at theta0 + sum_t Lambda_t tau_t, with the coefficients as its only parameters.

aTLAS (arXiv 2407.02880) and AdaMerging (2310.02575) train this. `train` treats it like any other
module: ordinary vectors move theta, linearized ones the tangent, and the loop is the same.

A block is theta_b = start_b + sum_t lambda_tb tau_tb; the gradient of lambda_tb is
<dL/dtheta_b, tau_tb> (2407.02880, equation 5). The vectors stay mapped from their files: one pass
over them computes the composed block, one pass the gradient. Only one composed copy exists beside
them, and no scaled vector is kept. Both passes are bound by memory bandwidth.

PEFT (section 5.3 there): the entries of a block are dealt at random into K parts, each with a
coefficient of its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tacl.backbone import Backbone, Item
from tacl.compose.arithmetic import require_one_model
from tacl.data.batches import in_order
from tacl.errors import BadConfig
from tacl.evaluation.tangents import Collates
from tacl.models.frozen import Batch, FrozenEncoder
from tacl.vectors import Block, Params, TaskVector

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
    the values of lambda_TK, if the caller has read them from the device already.
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
    """Deals every entry to one of at most 256 parts: uint8 of this shape, a function of the
    seed."""
    random = torch.Generator().manual_seed(seed)
    return torch.randint(parts, tuple(shape), generator=random, dtype=torch.uint8)


class ScaledEncoder(FrozenEncoder):
    """lambda = start_t + deviation; the deviation, [T, B, K], is learned, starting at zero.

    Args:
        start: one number for each vector: 0 to learn which vectors are useful at all, the recipe's
            coefficient to learn how to deviate from a sum that works already (tauJp vectors).
        parts: K, the number of coefficients for each (vector, block); `seed` deals its entries.
        dtype: of the pass, for linearized vectors only; blocks are composed in float32.

    Raises MixedRegimes, BaseMismatch, BadRecipe, BadConfig.
    """

    def __init__(
        self,
        backbone: Backbone,
        vectors: Sequence[TaskVector],
        start: Sequence[float] | None = None,
        *,
        parts: int = 1,
        seed: int = 0,
        dtype: torch.dtype | None = None,
    ) -> None:
        require_one_model(vectors)
        if dtype is not None and vectors[0].regime == "ordinary":
            raise BadConfig(f"what an ordinary vector adds is below the digits of {dtype}")
        vectors[0].require_base(backbone.digest, vectors[0].task, "this encoder")
        if not 1 <= parts <= 256:
            raise BadConfig(f"{parts} parts of a block; there may be 1 to 256")
        super().__init__(backbone.encoder, sorted({n for v in vectors for n in v.blocks}), dtype)
        self.regime = vectors[0].regime
        self.vectors = tuple(vectors)
        start = [0.0] * len(vectors) if start is None else start
        size = (len(vectors), len(self.blocks), parts)
        device = self.theta0(self.blocks[0]).device
        self.deviation = nn.Parameter(torch.zeros(size, device=device))
        self.register_buffer("start_T", torch.tensor(start, device=device), persistent=False)
        self.register_buffer("kept_TB", torch.ones(size[:2], device=device), persistent=False)
        self._parts = {name: self._part(name, parts, seed) for name in self.blocks}
        self._present = [dict(vector.blocks) for vector in vectors]

    def _part(self, name: str, parts: int, seed: int) -> Tensor | None:
        theta0 = self.theta0(name)
        if parts == 1:
            return None
        name_seed = zlib.crc32(f"{seed} {name}".encode())
        return random_parts(theta0.shape, parts, name_seed).to(theta0.device)

    def keep(self, kept_TB: Tensor) -> None:
        """Restricts learning to coefficients with a 1; the others stay at the vector's start.

        Blocks whose coefficients stay at a start of zero are never read again.
        """
        self.kept_TB = kept_TB.to(self.deviation.device, torch.float32)
        start = self.get_buffer("start_T").tolist()
        self._present = [
            {n: vector.blocks.get(n) for n, k in zip(self.blocks, row, strict=True) if k or c}
            for vector, row, c in zip(self.vectors, kept_TB.tolist(), start, strict=True)
        ]

    def coefficients(self) -> Tensor:
        """lambda, [T, B, K]."""
        kept_TB1 = self.get_buffer("kept_TB").unsqueeze(2)
        return self.get_buffer("start_T").view(-1, 1, 1) + kept_TB1 * self.deviation

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(features, tangent) [B, D]; they add up to the features of the composed model."""
        return self.at(self._blocks(), batch)

    @torch.no_grad()
    def features(
        self, backbone: Collates, parts: Iterable[Sequence[Item]], batch: int = 64
    ) -> list[Tensor]:
        """Features of the composed model, composed once for all parts: [N, D] of each part, on the
        CPU, in the items' order."""
        blocks = self._blocks()
        return [self._passes(blocks, backbone, items, batch) for items in parts]

    @torch.no_grad()
    def zero_shot(self, backbone: Collates, items: Sequence[Item], batch: int = 64) -> Tensor:
        """Features at theta0, whatever the coefficients: [N, D] on the CPU, in the items' order."""
        origin = {n: self._origin(self.theta0(n)) for n in self.blocks}
        return self._passes(origin, backbone, items, batch)

    def _passes(
        self, blocks: Params, backbone: Collates, items: Sequence[Item], batch: int
    ) -> Tensor:
        def summed(some: list[Item]) -> tuple[Tensor]:
            features_BD, tangent_BD = self.at(blocks, backbone.collate(some))
            return (features_BD + tangent_BD,)

        return in_order(items, batch, summed)[0]

    def _blocks(self) -> Params:
        """tau of the linearized model, theta of the ordinary one: the one composed copy."""
        return self._composed(self._origin)

    def _origin(self, theta0: Tensor) -> Tensor:
        return self._zero(theta0) if self.regime == "linearized" else theta0

    def _zero(self, theta0: Tensor) -> Tensor:
        return torch.zeros_like(theta0, dtype=self.precision)

    def _composed(self, origin: Callable[[Tensor], Tensor]) -> Params:
        lambda_TBK = self.coefficients()
        known_BTK = lambda_TBK.detach().transpose(0, 1).tolist()  # all at once, for all blocks
        return {
            name: composed_block(
                origin(self.theta0(name)),
                lambda_TBK[:, index],
                [present.get(name) for present in self._present],
                self._parts[name],
                known_BTK[index],
            )
            for index, name in enumerate(self.blocks)
        }

    @torch.no_grad()
    def tau_dict(self) -> Params:
        """sum_t Lambda_t tau_t, to be evaluated like any other tau."""
        return self._composed(self._zero)
