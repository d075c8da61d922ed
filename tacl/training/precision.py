"""Whether bfloat16 pays on this machine: measured, since a CPU may lack units for it and then takes
several times as long as in float32."""

from __future__ import annotations

from functools import cache

import torch
from torch.utils.benchmark import Timer

from tacl.backbone import Backbone
from tacl.models.linearized import linearize
from tacl.models.mixed import three_inputs
from tacl.training.config import Precision

ROWS, SIDE = 1024, 512  # of a product like that of a layer for a batch of texts
SECONDS = 0.1
BATCH = 24  # rows of a pass, about those of a training step
PAYS = 0.8  # of the time, at most: it has fewer digits, and a clock is not exact


@cache
def bfloat16_time(device: str = "cpu") -> float:
    """Time of a product in bfloat16, relative to float32: below 1 it pays. Measured once in a
    process."""

    def seconds(dtype: torch.dtype) -> float:
        x, w = (torch.ones(n, SIDE, dtype=dtype, device=device) for n in (ROWS, SIDE))
        timer = Timer("x @ w", globals={"x": x, "w": w}, num_threads=torch.get_num_threads())
        return timer.blocked_autorange(min_run_time=SECONDS).median

    return seconds(torch.bfloat16) / seconds(torch.float32)


def faster(device: str = "cpu") -> Precision:
    """The number format in which products take less time on this machine."""
    return "bfloat16" if bfloat16_time(device) < 1 else "float32"


def faster_with(backbone: Backbone) -> Precision:
    """The number format in which this base model trains faster on the CPU. Convolutions may gain
    nothing where the layers of a transformer take half the time."""
    raws = three_inputs(backbone.modality) * (BATCH // 3)
    batch = backbone.collate([*map(backbone.prepare, raws)])

    def seconds(dtype: torch.dtype | None) -> float:
        module = linearize(backbone, dtype)

        def step() -> None:
            features_BD, tangent_BD = module(batch)
            (features_BD + tangent_BD).square().mean().backward()
            module.zero_grad()

        timer = Timer("step()", globals={"step": step}, num_threads=torch.get_num_threads())
        return timer.blocked_autorange(min_run_time=SECONDS).median

    return "bfloat16" if seconds(torch.bfloat16) < PAYS * seconds(None) else "float32"
