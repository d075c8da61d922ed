"""Products that are reproducible bit for bit on a GPU, for a training resumed from a checkpoint. On
a CPU they always are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.backends import cudnn

WORKSPACES = "CUBLAS_WORKSPACE_CONFIG"


def cublas_workspaces(device: torch.device | str) -> None:
    """Sets cuBLAS's workspaces; call it before anything is on the device, as cuBLAS reads the
    setting once in a process. It affects nothing but the memory that cuBLAS works in."""
    if torch.device(device).type == "cuda":
        os.environ.setdefault(WORKSPACES, ":4096:8")


@contextmanager
def deterministic(device: torch.device | str) -> Iterator[None]:
    """Makes torch use deterministic algorithms on a CUDA device, and restores its settings after.

    If an operation has none, torch only warns: a training whose numbers may differ in the last bits
    is better than none.
    """
    if torch.device(device).type != "cuda":
        yield
        return
    if not torch.cuda.is_initialized():  # later it has no effect, and torch warns
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
