"""f_lin(x; tau) = f(x; theta0) + J(x) tau, by one dual pass through the unchanged encoder.

Source: arXiv 2305.12827, equation 4; "As cheap as it can be" in ARCHITECTURE.md counts the cost.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tacl.backbone import Backbone
from tacl.models.frozen import Batch, MovedEncoder
from tacl.vectors.vector import Regime


class LinearizedEncoder(MovedEncoder):
    """The encoder's tangent model around theta0; the pass may be in bfloat16, but never tau."""

    regime: Regime = "linearized"

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(f(x; theta0), J(x) tau), both [B, D] in tau's precision."""
        return self.at(self.tau_by_block(), batch)

    def linearized(self, batch: Batch) -> Tensor:
        """f(x; theta0) + J(x) tau, [B, D]."""
        features_BD, tangent_BD = self(batch)
        return features_BD + tangent_BD


def linearize(base: Backbone, dtype: torch.dtype | None = None) -> LinearizedEncoder:
    """The tangent model of a base model at theta0, with tau = 0: a module for any training loop.

    `model(batch)` is (f(x; theta0), J(x) tau), both [B, D], in one pass; their sum is the features
    of the linearized model. Its only parameters are tau, so pass `model.parameters()` to an
    optimizer; `model.tau_dict()` is tau by block, `model.load_tau(tau)` sets it. `dtype` is that of
    the pass, such as torch.bfloat16; tau and the results are float32. `model.to(device)` moves the
    base model too.

    Raises ValueError when no parameter of the encoder matches a pattern of `base.trainable`; in a
    pass inside `torch.autocast`, or of an encoder that writes its buffers.
    Source: arXiv 2305.12827, equation 4.
    """
    return LinearizedEncoder(base.encoder, base.trainable, dtype)
