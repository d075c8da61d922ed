"""Products that come out the same bit for bit on a GPU, for a training that goes on from a
checkpoint. On a CPU they do anyway."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.backends import cudnn

WORKSPACES = "CUBLAS_WORKSPACE_CONFIG"


def cublas_workspaces(device: torch.device | str) -> None:
    """To be called before anything is on the device: cuBLAS reads it once in a process, and it
    changes nothing but the memory that it works in."""
    if torch.device(device).type == "cuda":
        os.environ.setdefault(WORKSPACES, ":4096:8")


@contextmanager
def deterministic(device: torch.device | str) -> Iterator[None]:
    """Torch takes deterministic algorithms on a CUDA device, and afterwards what it took before.

    Where an operation has none torch warns: a training whose numbers may differ in the last bits
    is worth more than none.
    """
    if torch.device(device).type != "cuda":
        yield
        return
    if not torch.cuda.is_initialized():  # later it changes nothing, and torch warns
        cublas_workspaces(device)
    was = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    tried, chosen = cudnn.benchmark, cudnn.deterministic
    torch.use_deterministic_algorithms(True, warn_only=True)
    cudnn.benchmark, cudnn.deterministic = False, True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was, warn_only=only_warned)
        cudnn.benchmark, cudnn.deterministic = tried, chosen
