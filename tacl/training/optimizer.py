"""Torch's Adam and AdamW (arXiv 1412.6980, 1711.05101), without torch's compiler.

Torch's optimizers exclude themselves from compilation, for which their first use imports the
compiler: that takes as long as importing torch, in every process that trains. Nothing is compiled
here, so the methods below are torch's own, without the wrappers that exclude them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from tacl.training.config import TrainConfig


def _unwrapped(name: str) -> Any:
    """The method without its wrapper, if the release of torch wraps it."""
    method = getattr(torch.optim.Adam, name)
    return getattr(method, "__wrapped__", method)


class _Unwrapped:
    add_param_group = _unwrapped("add_param_group")
    state_dict = _unwrapped("state_dict")
    load_state_dict = _unwrapped("load_state_dict")
    zero_grad = _unwrapped("zero_grad")
    _step = _unwrapped("step")

    @torch.no_grad()
    def step(self) -> None:
        self._step()


class Adam(_Unwrapped, torch.optim.Adam):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Bit for bit `torch.optim.Adam`."""


class AdamW(_Unwrapped, torch.optim.AdamW):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Bit for bit `torch.optim.AdamW`."""


def adamw(module: nn.Module, config: TrainConfig) -> AdamW:
    """AdamW over all parameters of the module; fused on a CPU, in one pass over all tensors."""
    parameters = list(module.parameters())
    fused = True if parameters[0].device.type == "cpu" else None
    return AdamW(parameters, lr=config.learning_rate, weight_decay=config.weight_decay, fused=fused)


def stepped(module: nn.Module, optimizer: Adam | AdamW, clip: float, rate: float) -> Tensor:
    """Clips, updates the parameters, clears the gradients; returns the norm before clipping."""
    norm = clip_grad_norm_(module.parameters(), clip)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    optimizer.zero_grad()
    return norm


def save(module: nn.Module, optimizer: torch.optim.Optimizer, file: Path) -> None:
    """Writes tau and both moments by parameter name; theta0 is never part of a checkpoint."""
    tensors = {f"tau/{name}": p.detach() for name, p in module.named_parameters()}
    for name, parameter in module.named_parameters():
        for key, value in optimizer.state[parameter].items():
            tensors[f"{key}/{name}"] = value
    save_file(tensors, file)


@torch.no_grad()
def load(module: nn.Module, optimizer: torch.optim.Optimizer, file: Path) -> None:
    """Restores what `save` wrote, so that the next step is the same as without the interruption."""
    tensors = load_file(file)
    for name, parameter in module.named_parameters():
        parameter.copy_(tensors[f"tau/{name}"])
        keys = [key for key in ("step", "exp_avg", "exp_avg_sq") if f"{key}/{name}" in tensors]
        state = {key: tensors[f"{key}/{name}"] for key in keys}
        # The step counter is kept on the CPU, as AdamW does. Tensors are copied, so that none is a
        # view of the file, which is deleted later.
        optimizer.state[parameter] = {
            key: value.clone() if key == "step" else value.to(parameter.device, copy=True)
            for key, value in state.items()
        }
