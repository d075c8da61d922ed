"""The DeepSpeed engine: data-parallel training of tau with ZeRO 0, 1 or 2 (arXiv 1910.02054).

Everything about DeepSpeed is in this file, which only a process that trains imports. The dual
forward is inside the module's `forward`, so that DeepSpeed sees an ordinary module whose only
parameters are tau. Checkpoints are named tensors in float32, gathered on rank 0: they do not depend
on the stage or on the number of ranks.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from tacl.backbone import Batch
from tacl.errors import BadConfig
from tacl.models.frozen import FrozenEncoder
from tacl.training.config import TrainConfig
from tacl.training.optimizer import adamw

MOMENTS = ("exp_avg", "exp_avg_sq")
BUCKET = 2**24  # elements reduced at once; DeepSpeed's default would reserve 2 GB
FILE = "engine.safetensors"

_claimed = False  # whether this process has an engine


class DeepSpeedEngine:
    """One optimizer over tau, whose state is divided between the ranks (stages 1 and 2).

    Joins the existing process group, or creates one of a single rank if there is none.
    Raises BadConfig for ZeRO stage 3, RuntimeError for a second engine in one process before the
    first is closed.
    """

    def __init__(self, module: FrozenEncoder, config: TrainConfig, zero_stage: int = 0) -> None:
        _refuse_stage(zero_stage)
        _claim_process()
        self.module: FrozenEncoder = module
        self.device = next(module.parameters()).device
        self.accumulation = config.accumulation
        self.clip = config.clip
        self.sharded = zero_stage > 0
        self._micro = 0
        _join_group(self.device)
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.optimizer = adamw(module, config)
        self._engine = _initialize(
            module, self.optimizer, _settings(config, zero_stage), self.device
        )
        if self.world_size == 1 and not self.sharded:
            # Otherwise every gradient would be copied into buckets and back for no other rank.
            self._engine.enable_backward_allreduce = False
        module.eval()  # DeepSpeed leaves it as it was; a dual forward has no train mode

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(features, tangent), each [B, D]."""
        return self._engine(batch)

    def backward(self, loss: Tensor) -> None:
        """Adds the gradient of `loss`, already divided by the accumulation, on this rank.

        The last micro-batch of an optimizer step averages over the ranks.
        """
        self._micro += 1
        self._engine.set_gradient_accumulation_boundary(self._micro == self.accumulation)
        self._engine.backward(loss, scale_wrt_gas=False)

    def step(self, learning_rate: float) -> Tensor:
        """Clips, steps, zeroes the gradients; returns the gradient's norm before clipping."""
        if self._micro != self.accumulation:
            raise RuntimeError(
                f"{self._micro} micro-batches before a step, not {self.accumulation}"
            )
        self._micro = 0
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        if self.sharded:
            self._engine.step()
            return torch.as_tensor(self._engine.get_global_grad_norm(), device=self.device)
        for parameter in self.module.parameters():
            if parameter.grad is None:  # unused in this step; averaging would make it zero too
                parameter.grad = torch.zeros_like(parameter)
        norm = clip_grad_norm_(self.module.parameters(), self.clip)  # stage 0 reports no norm
        self._engine.step()
        return norm

    def save(self, folder: Path) -> None:
        """Writes tau and the optimizer's state, from rank 0; every rank must call it."""
        steps = self._steps()
        tensors = {f"tau/{name}": self._whole(p) for name, p in self.module.named_parameters()}
        for moment in MOMENTS if steps else ():
            for name, parameter in self.module.named_parameters():
                tensors[f"{moment}/{name}"] = self._whole(parameter, moment)
        if self.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            save_file(tensors, folder / FILE, metadata={"steps": str(steps)})
        dist.barrier()

    def load(self, folder: Path) -> None:
        """Restores what `save` wrote, from any stage and any number of ranks."""
        with safe_open(folder / FILE, framework="pt") as file:
            steps = int(file.metadata()["steps"])
            self._make_moments(steps)
            for name, parameter in self.module.named_parameters():
                self._fill(parameter, file.get_tensor(f"tau/{name}"))
                for moment in MOMENTS if steps else ():
                    self._fill(parameter, file.get_tensor(f"{moment}/{name}"), moment)

    def close(self) -> None:
        """Destroys the engine: in stages 1 and 2, DeepSpeed's hooks on the parameters would
        otherwise keep the module and its gradients for ever."""
        global _claimed
        self._engine.destroy()
        _claimed = False

    def _steps(self) -> int:
        states = list(self.optimizer.state.values())
        return int(states[0]["step"]) if states else 0

    def _whole(self, parameter: Tensor, moment: str | None = None) -> Tensor:
        """The float32 value of a parameter, or one of its moments, gathered from all ranks."""
        if self.sharded:
            return parameter.get_full_hp_param(moment).detach().cpu()  # type: ignore[attr-defined]
        value = self.optimizer.state[parameter][moment] if moment else parameter
        return value.detach().cpu().clone()

    def _fill(self, parameter: Tensor, value: Tensor, moment: str | None = None) -> None:
        value = value.to(parameter.device)
        if moment is None:
            parameter.data.copy_(value)
        if self.sharded:
            parameter.set_full_hp_param(value, moment)  # type: ignore[attr-defined]
        elif moment:
            self.optimizer.state[parameter][moment].copy_(value)

    def _make_moments(self, steps: int) -> None:
        """Creates the moments for a resumed optimizer; otherwise the first step does."""
        if steps == 0:
            return
        for group in self.optimizer.param_groups:
            for flat in group["params"]:
                state = self.optimizer.state[flat]
                state.setdefault("step", torch.tensor(0.0)).fill_(float(steps))
                for moment in MOMENTS:
                    state.setdefault(moment, torch.zeros_like(flat))
        if self.sharded:
            self._engine.optimizer._lazy_init_hp_params_optimizer_state()


def _refuse_stage(stage: int) -> None:
    if stage == 3:
        raise BadConfig(
            "ZeRO stage 3 was asked for: it leaves parameters of size 0 between layers, where the "
            "dual forward sets their tangents (DeepSpeed issue 7913); use stage 0, 1 or 2"
        )
    if stage not in (0, 1, 2):
        raise BadConfig(f"ZeRO stage {stage} was asked for; there are 0, 1 and 2")


def _claim_process() -> None:
    global _claimed
    if _claimed:
        raise RuntimeError(
            "this process has a DeepSpeed engine already, and a second one leaks the first "
            "(DeepSpeed issue 7204); close it before"
        )
    _claimed = True


def _join_group(device: torch.device) -> None:
    os.environ.setdefault("DS_ACCELERATOR", device.type)
    if dist.is_initialized():
        return
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "0")  # read, never bound: one rank needs no store
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)


def _settings(config: TrainConfig, stage: int) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 1,  # the loop cuts the batches; only counters use it
        "gradient_accumulation_steps": config.accumulation,
        "gradient_clipping": config.clip if stage else 0.0,
        "steps_per_print": 2**62,
        "zero_allow_untested_optimizer": True,  # AdamW by another name
        "zero_optimization": {
            "stage": stage,
            "reduce_bucket_size": BUCKET,
            "allgather_bucket_size": BUCKET,
        },
    }


@contextlib.contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Prevents the import of a module, unless it is imported already: DeepSpeed's autotuner, which
    is not used, would import all of MLflow if installed, which takes nearly as long as torch."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # pyright: ignore[reportArgumentType]  # so says Python's import system
    try:
        yield
    finally:
        del sys.modules[name]


def _initialize(
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    settings: dict[str, Any],
    device: torch.device,
) -> Any:
    """The engine, with DeepSpeed's messages in the log instead of on the terminal."""
    noise = io.StringIO()
    with contextlib.redirect_stdout(noise), _hidden("mlflow"):
        import deepspeed
        import deepspeed.ops

        if device.type == "cpu":  # otherwise the first engine compiles an extension, with g++
            deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
        engine, *_ = deepspeed.initialize(model=module, optimizer=optimizer, config=settings)
    logging.getLogger(__name__).debug("DeepSpeed: %s", noise.getvalue())
    return engine
