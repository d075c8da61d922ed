"""f(x; theta0 + tau): the usual fine-tuning of the encoder, in the framework of this package.

Blocks, heads, loop and eval mode are those of the linearized model, so that tables compare only the
models. There is no tangent, and so no tauJp: such vectors are trained without other tasks.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from tacl.models.frozen import Batch, MovedEncoder
from tacl.vectors import Regime


class OrdinaryEncoder(MovedEncoder):
    """The encoder at theta0 + tau, never in bfloat16, which is too coarse for what tau adds."""

    regime: Regime = "ordinary"

    def __init__(self, encoder: nn.Module, trainable: Sequence[str] = ("*",)) -> None:
        super().__init__(encoder, trainable)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(f(x; theta0 + tau), zeros), both [B, D]: the pair that the loop adds up."""
        theta = {name: self.theta0(name) + tau for name, tau in self.tau_by_block().items()}
        return self.at(theta, batch)
