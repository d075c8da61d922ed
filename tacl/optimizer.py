"""Adam and AdamW (arXiv 1412.6980, 1711.05101) as torch has them, without torch's compiler.

torch's optimizers hide from the compiler, and the first time they are used they import it to do
so: as much time as torch itself takes, in every process that trains. Nothing is compiled here, so
the methods below are torch's own, taken out of the wrappers that hide them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tacl.config import TrainConfig

_TORCH: Any = torch.optim.Adam


class _Unwrapped:
    add_param_group = _TORCH.add_param_group.__wrapped__
    state_dict = _TORCH.state_dict.__wrapped__
    load_state_dict = _TORCH.load_state_dict.__wrapped__
    zero_grad = _TORCH.zero_grad.__wrapped__
    _step = _TORCH.step.__wrapped__

    @torch.no_grad()
    def step(self) -> None:
        self._step()


class Adam(_Unwrapped, torch.optim.Adam):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Bit for bit `torch.optim.Adam`."""


class AdamW(_Unwrapped, torch.optim.AdamW):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Bit for bit `torch.optim.AdamW`."""


def adamw(module: nn.Module, config: TrainConfig) -> AdamW:
    """Over all parameters of the module; on a CPU in one pass over them and their moments."""
    parameters = list(module.parameters())
    fused = True if parameters[0].device.type == "cpu" else None
    return AdamW(parameters, lr=config.learning_rate, weight_decay=config.weight_decay, fused=fused)
