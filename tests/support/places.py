"""Where the checkout lies, and where files of tests go that need not outlive them."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MEMORY = Path("/dev/shm")  # files in memory: a sync of them costs nothing
ENOUGH = 4 << 30  # bytes


def in_memory() -> bool:
    """Whether tests of one run fit into it."""
    return MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ENOUGH
