"""Where the checkout is, and where temporary files of tests are written."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MEMORY = Path("/dev/shm")  # files in memory: syncing them is free
ENOUGH = 4 << 30  # bytes


def in_memory() -> bool:
    """Whether the files of one run of the tests fit into memory."""
    return MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ENOUGH
