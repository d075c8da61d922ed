"""The memory that exists, and is free, for this process and those beside it: a container may have
less than its machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

# For a container, in versions 2 and 1 of control groups: the folder, the files of the limit and of
# the usage, and the line of `memory.stat` (which some sandboxes lack) with the caches in the usage.
GROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file"),
    (
        Path("/sys/fs/cgroup/memory"),
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)


def limit() -> int:
    """Bytes that this process and those beside it may use together."""
    return min([psutil.virtual_memory().total, *(most for most, *_ in _limits())])


def free() -> int:
    """Bytes that could be allocated, including those that caches would release."""
    found = psutil.virtual_memory().available
    for most, folder, used, caches in _limits():
        stat = folder / "memory.stat"
        kinds = dict(map(str.split, stat.read_text().splitlines())) if stat.exists() else {}
        taken = int((folder / used).read_text()) - int(kinds.get(caches, 0))
        found = min(found, max(0, most - taken))
    return found


def _limits() -> Iterator[tuple[int, Path, str, str]]:
    """For each group with a limit: its bytes, the folder, and the names of the usage and caches."""
    for folder, limit, used, caches in GROUPS:
        most = (folder / limit).read_text().strip() if (folder / limit).exists() else "max"
        if most.isdecimal():
            yield int(most), folder, used, caches
