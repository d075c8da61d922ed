"""How many bytes a predictor may use to keep what it can read again."""

from __future__ import annotations

import torch

from cluster.runtime.memory import limit

OF_MEMORY = 4  # one part in so many is for predictors, since learners need room too
OF_GPU = 2  # one part in so many of what is free beside the base: passes need the rest


def share(device: torch.device, predictors: int) -> int:
    """Bytes for each of the `predictors` that use the same memory, of a GPU or of the machine."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] // OF_GPU // predictors
    return limit() // OF_MEMORY // predictors
