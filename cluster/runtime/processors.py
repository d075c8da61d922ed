"""The number of CPUs for this process: a container may have less CPU time than its machine has
processors."""

from __future__ import annotations

import os
from pathlib import Path

# The CPU time of a container in each period, and the period: versions 2 and 1 of control groups.
QUOTAS = (
    (Path("/sys/fs/cgroup/cpu.max"),),
    (Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")),
)


def cpus() -> int:
    """The number of CPUs, at least 1."""
    found = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    for files in QUOTAS:
        said = " ".join(path.read_text() for path in files if path.exists()).split()
        if len(said) == 2 and said[0].isdecimal():  # "max" and -1 mean no limit
            found = min(found, max(1, int(said[0]) // int(said[1])))
    return found
