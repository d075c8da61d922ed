"""theta0 + tau as one ordinary model, which other libraries can run in one plain forward.

For vectors that were trained in the linearized model this is an approximation, f(x; theta0 + tau)
in place of f(x; theta0) + J(x) tau: rely on its measured accuracy only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tacl.backbone import Backbone, Item
from tacl.data.batches import in_order
from tacl.dual.encode import encode
from tacl.errors import BadBase
from tacl.models.frozen import refuse_autocast
from tacl.vectors.params import Params


def materialized(encoder: nn.Module, tau: Mapping[str, Tensor]) -> Params:
    """theta0 + tau, every parameter and buffer of the encoder by name.

    Raises ValueError when `tau` has a tensor that the encoder lacks, or one of another shape.
    """
    theta = {name: value.detach() for name, value in encoder.state_dict().items()}
    for name, change in tau.items():
        if name not in theta or theta[name].shape != change.shape:
            raise ValueError(f"tau's {name}, {list(change.shape)}, is no tensor of the encoder")
        theta[name] = theta[name] + change.to(theta[name].device, theta[name].dtype)
    first = {id(value): name for name, value in encoder.named_parameters()}
    for name, value in encoder.named_parameters(remove_duplicate=False):
        if name in theta:  # state_dict may leave it out
            theta[name] = theta[first[id(value)]]  # a parameter with several names has one value
    return theta


@torch.no_grad()
def materialized_features(
    backbone: Backbone, theta: Params, items: Sequence[Item], batch: int = 64
) -> Tensor:
    """f(x; theta), [N, D] float32 on the CPU, in the items' order. Buffers are copied, so that an
    encoder that writes to them does not change theta0. Raises BadBase for any other output,
    ValueError inside `torch.autocast`."""
    refuse_autocast(backbone.device)
    buffers = {n: theta.get(n, b).clone() for n, b in backbone.encoder.named_buffers()}
    # A buffer with several names is given under one, as two copies would contradict each other.
    again = dict(backbone.encoder.named_buffers(remove_duplicate=False)).keys() - buffers.keys()
    theta = {n: value for n, value in {**theta, **buffers}.items() if n not in again}

    def encoded(some: list[Item]) -> tuple[Tensor]:
        found: Any = encode(backbone.encoder, theta, backbone.collate(some))
        if not isinstance(found, Tensor) or found.ndim != 2:
            given = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise BadBase(f"base {backbone.spec} gives {given}; features are one tensor, [B, D]")
        return (found,)

    return in_order(items, batch, encoded)[0]
