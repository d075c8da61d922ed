"""The encoder at theta0 + sum_t Lambda_t tau_t, with the coefficients as its only parameters.

What aTLAS (arXiv 2407.02880) and AdaMerging (2310.02575) train. It is a module as `train` knows
them: ordinary vectors move theta, linearized ones the tangent, and the loop is the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from tacl.backbone import Backbone, Item
from tacl.compose.arithmetic import require_one_model
from tacl.compose.scaling import composed_block, random_parts
from tacl.data.batches import in_order
from tacl.errors import BadConfig, BaseMismatch
from tacl.evaluation.tangents import Collates
from tacl.models.frozen import Batch, FrozenEncoder
from tacl.vectors.params import Params
from tacl.vectors.vector import TaskVector


class ScaledEncoder(FrozenEncoder):
    """lambda = start_t + deviation; the deviation, [T, B, K] from zero, is what is learned.

    Args:
        start: one number for each vector: 0 to learn which vectors are of use at all, the recipe's
            coefficient to learn how to deviate from a sum that works already (tauJp vectors).
        parts: K coefficients for each (vector, block), over entries dealt at random by `seed`.
        dtype: arithmetic of the pass, of linearized vectors only; blocks are composed in float32.

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
        if vectors[0].base != backbone.digest:
            raise BaseMismatch(
                f"{vectors[0].task} belongs to the base {vectors[0].base[:12]}, and this encoder "
                f"is {backbone.digest[:12]}"
            )
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
        """Only coefficients with a 1 are learned; the others stay at the vector's start.

        Blocks that stay at a start of zero are never read again.
        """
        self.kept_TB = kept_TB.to(self.deviation.device, torch.float32)
        start = self.get_buffer("start_T").tolist()
        kept = kept_TB.tolist()
        self._present = [dict(vector.blocks) for vector in self.vectors]
        for present, row, c in zip(self._present, kept, start, strict=True):
            for name, k in zip(self.blocks, row, strict=True):
                if not (k or c):
                    present.pop(name, None)

    def coefficients(self) -> Tensor:
        """lambda, [T, B, K]."""
        kept_TB1 = self.get_buffer("kept_TB").unsqueeze(2)
        return self.get_buffer("start_T").view(-1, 1, 1) + kept_TB1 * self.deviation

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(features, tangent) [B, D]; they add up to the features of the composed model."""
        return self._at(self._blocks(), batch)

    @torch.no_grad()
    def features(self, backbone: Collates, items: Sequence[Item], batch: int = 64) -> Tensor:
        """Of the composed model, [N, D] on the CPU, in the items' order; composed once for all."""
        return self._passes(self._blocks(), backbone, items, batch)

    @torch.no_grad()
    def zero_shot(self, backbone: Collates, items: Sequence[Item], batch: int = 64) -> Tensor:
        """Of theta0, whatever the coefficients are; [N, D] on the CPU, in the items' order."""
        origin = {n: self._origin(self.theta0(n)) for n in self.blocks}
        return self._passes(origin, backbone, items, batch)

    def _passes(
        self, blocks: Params, backbone: Collates, items: Sequence[Item], batch: int
    ) -> Tensor:
        def summed(some: list[Item]) -> tuple[Tensor]:
            features_BD, tangent_BD = self._at(blocks, backbone.collate(some))
            return (features_BD + tangent_BD,)

        return in_order(items, batch, summed)[0]

    def _at(self, blocks: Params, batch: Batch) -> tuple[Tensor, Tensor]:
        if self.regime == "linearized":
            return self.linearized_at(blocks, batch)
        features_BD = self.ordinary_at(blocks, batch)
        return features_BD, torch.zeros_like(features_BD)

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
        """sum_t Lambda_t tau_t: evaluate it like any other tau."""
        return self._composed(self._zero)
