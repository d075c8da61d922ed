"""What a cell costs: seconds of the clock, seconds of CPU, and the most memory held meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

MIB = 1 << 20


@dataclass
class Cost:
    """`peak_mib` is that of the GPU where there is one, else of the whole process; the base, the
    prepared data and the libraries are in it. On a busy machine `cpu_seconds` says more."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_mib: float = 0.0

    def as_dict(self) -> dict[str, float]:
        return {name: round(value, 3) for name, value in asdict(self).items()}


def together(costs: Sequence[Cost]) -> Cost:
    """One after another."""
    return Cost(
        sum(cost.seconds for cost in costs),
        sum(cost.cpu_seconds for cost in costs),
        max((cost.peak_mib for cost in costs), default=0.0),
    )


@contextmanager
def measured() -> Iterator[Cost]:
    """The cost of the block, filled in when it ends."""
    cost = Cost()
    _forget_peak()
    clock, cpu = time.monotonic(), time.process_time()
    yield cost
    cost.seconds = time.monotonic() - clock
    cost.cpu_seconds = time.process_time() - cpu
    cost.peak_mib = _peak() / MIB


def _forget_peak() -> None:
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with suppress(OSError):  # elsewhere than on Linux the peak is that of the process so far
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again from here


def _peak() -> int:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
