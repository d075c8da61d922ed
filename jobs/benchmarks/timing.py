"""Times that can be compared, and bytes that a pass makes.

The contestants run in turns, and each gets its median and spread. A machine has other work, and its
clock rate changes. A disturbance longer than a round affects all contestants equally, and a shorter
one hardly changes a median; so ratios are reliable where times are not.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
import timeit
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, UntypedStorage
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Run = Callable[[], object]
LOOP = "a million turns of a loop of Python"
Say = Callable[[int, int], None]  # (done, total)


@dataclass(frozen=True)
class Race:
    """Seconds of every contestant in every round."""

    seconds: Mapping[str, list[float]]

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def spreads(self) -> dict[str, float]:
        """The width of the middle half of the times, in seconds (interquartile range)."""
        middle = {name: np.quantile(times, (0.25, 0.75)) for name, times in self.seconds.items()}
        return {name: float(high - low) for name, (low, high) in middle.items()}

    def ratio(self, of: str, *to: str) -> float:
        """Median over the rounds of the ratio within a round; several names `to` are added up."""
        rounds = zip(self.seconds[of], *(self.seconds[name] for name in to), strict=True)
        return statistics.median(a / sum(b) for a, *b in rounds)

    def figures(self) -> dict[str, Any]:
        """The figures that every bench reports."""
        medians = {f"{name}_s": self.median(name) for name in self.seconds}
        return {**medians, "spread_s": self.spreads()}


def setting(model: str, device: str, rounds: int) -> dict[str, Any]:
    """The first figures of a bench."""
    threads = torch.get_num_threads()
    return {"model": model, "device": device, "threads": threads, "rounds": rounds}


def in_turns(contestants: Mapping[str, Run], rounds: int, device: str, say: Say) -> Race:
    """Run each contestant once untimed, then `rounds` rounds with one turn each."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    turns = [name for _ in range(rounds + 1) for name in contestants]
    for turn, name in enumerate(turns):
        say(turn, len(turns))
        taken = timed(contestants[name], device)
        if turn >= len(contestants):
            seconds[name].append(taken)
    say(len(turns), len(turns))
    return Race(seconds)


def timed(run: Run, device: str) -> float:
    """Seconds until the work is done, not only queued on the device."""
    start = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


class MadeBytes(TorchDispatchMode):
    """Counts bytes of the tensors that are made inside: `peak` is the most that existed at a time,
    `kept` what still existed at the end.

    This is not resident memory, which depends on allocators and on what ran before. A dispatch mode
    sees each operation below autograd and below `torch.func`, so the same measure holds for all
    contestants; hooks on what autograd saves would miss what a formula holds, and do not work under
    `torch.func`.

    Memory counts once, however many tensors are views of it. What existed before does not count,
    changed in place or not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept = self.peak = 0
        self._known: set[int] = set()
        self._ended = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        given = {storage._cdata for storage in _storages((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        for storage in _storages(result):
            if storage._cdata not in given:
                self._count(storage)
        return result

    def _count(self, storage: UntypedStorage) -> None:
        if (key := storage._cdata) in self._known:
            return
        size = storage.nbytes()
        self._known.add(key)
        self.kept += size
        self.peak = max(self.peak, self.kept)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        if not self._ended:
            self._known.discard(key)
            self.kept -= size

    def __exit__(self, *error: Any) -> None:
        self._ended = True
        super().__exit__(*error)


def _storages(values: Any) -> list[UntypedStorage]:
    return [x.untyped_storage() for x in tree_leaves(values) if isinstance(x, Tensor)]


def processor() -> str:
    """The processor's name."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def machine() -> str:
    """The machine of a bench, its speed and its load: CPU times of two machines differ about as the
    times of the loop do."""
    load = f"load {os.getloadavg()[0]:.1f} at the end"
    return f"{os.cpu_count()} x {processor()}, {load}, {_loop_ms():.0f} CPU ms for {LOOP}"


def _loop_ms() -> float:
    """The fastest of several, in CPU milliseconds."""
    turns = "sum(number & 1 for number in range(1_000_000))"
    return 1000 * min(timeit.repeat(turns, timer=time.process_time, repeat=5, number=1))
