"""Whether bfloat16 pays on this machine: measured, since a CPU may lack units for it and then takes
several times as long as in float32."""

from __future__ import annotations

import logging
import math
import time
from functools import cache

import torch
from torch.utils.benchmark import Timer

from tacl.backbone import Backbone, Batch
from tacl.models.linearized import linearize
from tacl.models.mixed import three_inputs
from tacl.training.config import Precision

ROWS, SIDE = 1024, 512  # of a product like that of a layer for a batch of texts
LEAST, MOST, SECONDS = 3, 20, 1.0  # steps that are timed, and time for more than the least
TEXTS, WORDS = 24, 40  # of a step that is timed, about as in a training
PAYS = 0.8  # of the time, at most: it has fewer digits, and a clock is not exact

LOG = logging.getLogger(__name__)


@cache
def bfloat16_time(device: str = "cpu") -> float:
    """Time of a product in bfloat16, relative to float32: below 1 it pays. Measured once in a
    process."""

    def seconds(dtype: torch.dtype) -> float:
        x, w = (torch.ones(n, SIDE, dtype=dtype, device=device) for n in (ROWS, SIDE))
        timer = Timer("x @ w", globals={"x": x, "w": w}, num_threads=torch.get_num_threads())
        return timer.blocked_autorange(min_run_time=0.1).median

    return seconds(torch.bfloat16) / seconds(torch.float32)


def faster(device: str = "cpu") -> Precision:
    """The number format in which products take less time on this machine."""
    return "bfloat16" if bfloat16_time(device) < 1 else "float32"


def faster_with(backbone: Backbone) -> Precision:
    """The number format in which this base model trains faster on the CPU: steps in each are timed,
    where products in bfloat16 pay at all. Convolutions may gain nothing where the layers of a
    transformer take half the time. Float32 for a base that has no pass in bfloat16."""
    if faster() == "float32":
        return "float32"
    texts: list[bytes | str] = [" ".join(["word"] * WORDS)] * TEXTS
    # Few pictures: a large base takes seconds for each.
    raws = texts if backbone.modality == "text" else three_inputs(backbone.modality)
    batch = backbone.collate([*map(backbone.prepare, raws)])
    try:
        half = _step_seconds(backbone, batch, torch.bfloat16)
    except (ValueError, RuntimeError) as error:  # of what has no rule, NotImplementedError
        LOG.warning("no training in bfloat16: %s", error)
        return "float32"
    return "bfloat16" if half < PAYS * _step_seconds(backbone, batch, None) else "float32"


def _step_seconds(backbone: Backbone, batch: Batch, dtype: torch.dtype | None) -> float:
    """Of a pass and its gradient: the least of several, for others may use the processor too.
    Endless where it gives no finite number."""
    module, times = linearize(backbone, dtype), list[float]()
    while len(times) < LEAST or (len(times) < MOST and sum(times) < SECONDS):
        started = time.perf_counter()
        features_BD, tangent_BD = module(batch)
        (features_BD + tangent_BD).square().mean().backward()
        if not features_BD.isfinite().all():
            return math.inf
        times.append(time.perf_counter() - started)
    return min(times)
