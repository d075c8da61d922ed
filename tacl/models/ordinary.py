"""f(x; theta0 + tau): the encoder as everybody fine-tunes it, in the frame of this package.

The same blocks, heads, loop and eval mode as the linearized model, so that tables compare the
model and nothing else. There is no tangent, and so no tauJp: such vectors are trained alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tacl.backbone import Item
from tacl.data.batches import in_order
from tacl.evaluation.tangents import Collates
from tacl.models.frozen import Batch, MovedEncoder
from tacl.vectors import Params, Regime


class OrdinaryEncoder(MovedEncoder):
    """The encoder at theta0 + tau. Float32 alone: what tau adds is below the digits of bfloat16."""

    regime: Regime = "ordinary"

    def __init__(self, encoder: nn.Module, trainable: Sequence[str] = ("*",)) -> None:
        super().__init__(encoder, trainable)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(f(x; theta0 + tau), zeros), both [B, D]: the pair that the loop adds up."""
        theta = {name: self.theta0(name) + tau for name, tau in self.tau_by_block().items()}
        features_BD = self.ordinary_at(theta, batch)
        return features_BD, torch.zeros_like(features_BD)


@torch.no_grad()
def ordinary_features(
    module: OrdinaryEncoder,
    backbone: Collates,
    items: Sequence[Item],
    tau: Params,
    batch: int = 64,
) -> Tensor:
    """f(x; theta0 + tau) of every item, [N, D] on the CPU, float32, in the items' order.

    The module has its own tau again afterwards.
    """
    own = module.tau_dict()
    try:
        module.load_tau(tau)
        return in_order(items, batch, lambda some: module(backbone.collate(some)))[0]
    finally:
        module.load_tau(own)
