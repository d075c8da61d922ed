"""Measures whether bfloat16 pays on this machine: a CPU may lack units for it, and then takes
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
LEAST, MOST, SECONDS = 3, 20, 1.0  # timed steps, and the time after which LEAST are enough
TEXTS, WORDS = 24, 40  # of a timed step, about as in a training
PAYS = 0.8  # bfloat16 must take less than this share: it has fewer digits, and clocks are inexact

LOG = logging.getLogger(__name__)


@cache
def bfloat16_time(device: str = "cpu") -> float:
    """Time of a product in bfloat16, relative to float32: below 1, bfloat16 pays. Measured once in
    a process."""

    def seconds(dtype: torch.dtype) -> float:
        x, w = (torch.ones(n, SIDE, dtype=dtype, device=device) for n in (ROWS, SIDE))
        timer = Timer("x @ w", globals={"x": x, "w": w}, num_threads=torch.get_num_threads())
        return timer.blocked_autorange(min_run_time=0.1).median

    return seconds(torch.bfloat16) / seconds(torch.float32)


def faster(device: str = "cpu") -> Precision:
    """The number format in which products take less time on this machine."""
    return "bfloat16" if bfloat16_time(device) < 1 else "float32"


def faster_with(backbone: Backbone) -> Precision:
    """The number format in which this base model trains faster on the CPU, by timing steps in each
    if products in bfloat16 are faster at all: convolutions may gain nothing where the layers of a
    transformer take half the time. Float32 for a base model whose pass fails in bfloat16."""
    if faster() == "float32":
        return "float32"
    texts: list[bytes | str] = [" ".join(["word"] * WORDS)] * TEXTS
    # Few pictures: a large base takes seconds for each.
    raws = texts if backbone.modality == "text" else three_inputs(backbone.modality)
    batch = backbone.collate([*map(backbone.prepare, raws)])
    try:
        half = _step_seconds(backbone, batch, torch.bfloat16)
    except (ValueError, RuntimeError) as error:  # includes NotImplementedError, for lack of a rule
        LOG.warning("no training in bfloat16: %s", error)
        return "float32"
    return "bfloat16" if half < PAYS * _step_seconds(backbone, batch, None) else "float32"


def _step_seconds(backbone: Backbone, batch: Batch, dtype: torch.dtype | None) -> float:
    """Seconds of a pass and its gradient, the least of several, as others may use the processor
    too. Infinite if the features are not finite."""
    module, times = linearize(backbone, dtype), list[float]()
    while len(times) < LEAST or (len(times) < MOST and sum(times) < SECONDS):
        started = time.perf_counter()
        features_BD, tangent_BD = module(batch)
        (features_BD + tangent_BD).square().mean().backward()
        if not features_BD.isfinite().all():
            return math.inf
        times.append(time.perf_counter() - started)
    return min(times)
