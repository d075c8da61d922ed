"""How many bytes a predictor may fill with what it can read again."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

# Of a container: the second version of control groups, and the first.
CGROUPS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
OF_MEMORY = 4  # one part in so many: learners have room beside predictors
OF_GPU = 2  # of what is free beside the base: passes need the rest


def share(device: torch.device, predictors: int) -> int:
    """Of one of so many predictors that use the same memory, of a GPU or of the machine."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] // OF_GPU // predictors
    return limit() // OF_MEMORY // predictors


def limit() -> int:
    """What this process and those beside it may use together, in bytes."""
    said = [path.read_text().strip() for path in CGROUPS if path.exists()]
    limits = [int(one) for one in said if one.isdecimal()]  # "max": none
    return min([psutil.virtual_memory().total, *limits])
