"""Whether products in bfloat16 pay on this machine: measured, since a CPU may lack units for them
and then takes several times as long as in float32."""

from __future__ import annotations

from functools import cache

import torch
from torch.utils.benchmark import Timer

from tacl.training.config import Precision

ROWS, SIDE = 1024, 512  # of a product like that of a layer for a batch of texts
SECONDS = 0.1


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
