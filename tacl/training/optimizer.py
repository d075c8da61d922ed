"""Adam and AdamW (arXiv 1412.6980, 1711.05101) as torch has them, without torch's compiler.

torch's optimizers hide from the compiler, and the first time they are used they import it to do
so: as much time as torch itself takes, in every process that trains. Nothing is compiled here, so
the methods below are torch's own, taken out of the wrappers that hide them.
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
    """The method itself; as it is in a release of torch that does not wrap it."""
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
    """Over all parameters of the module; on a CPU in one pass over them and their moments."""
    parameters = list(module.parameters())
    fused = True if parameters[0].device.type == "cpu" else None
    return AdamW(parameters, lr=config.learning_rate, weight_decay=config.weight_decay, fused=fused)


def stepped(module: nn.Module, optimizer: Adam | AdamW, clip: float, rate: float) -> Tensor:
    """Clips, updates the parameters, clears the gradients; the gradient's norm before clipping."""
    norm = clip_grad_norm_(module.parameters(), clip)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    optimizer.zero_grad()
    return norm


def save(module: nn.Module, optimizer: torch.optim.Optimizer, file: Path) -> None:
    """tau and both moments by parameter name; theta0 is never part of a checkpoint."""
    tensors = {f"tau/{name}": p.detach() for name, p in module.named_parameters()}
    for name, parameter in module.named_parameters():
        for key, value in optimizer.state[parameter].items():
            tensors[f"{key}/{name}"] = value
    save_file(tensors, file)


@torch.no_grad()
def load(module: nn.Module, optimizer: torch.optim.Optimizer, file: Path) -> None:
    """What was saved, so that the next step is the one that would have been."""
    tensors = load_file(file)
    for name, parameter in module.named_parameters():
        parameter.copy_(tensors[f"tau/{name}"])
        keys = [key for key in ("step", "exp_avg", "exp_avg_sq") if f"{key}/{name}" in tensors]
        state = {key: tensors[f"{key}/{name}"] for key in keys}
        # The step counter stays where AdamW makes it, on the CPU. Nothing stays a view of the file,
        # which goes when it is old.
        optimizer.state[parameter] = {
            key: value.clone() if key == "step" else value.to(parameter.device, copy=True)
            for key, value in state.items()
        }
