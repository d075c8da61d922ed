"""What the files of results share: a table, and the name of the machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path


def table(heads: Sequence[str], lines: Iterable[Sequence[str]], align: str = "---") -> str:
    """`align` is the rule under every column but the first."""
    rule = ["---", *[align] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *lines))


def processor() -> str:
    """As the machine calls it."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def machine() -> str:
    """What a bench ran on, and beside how much."""
    return f"{os.cpu_count()} x {processor()}, load {os.getloadavg()[0]:.1f} at the end"
