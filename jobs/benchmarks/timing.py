"""Times that can be compared: the contestants take turns, and each gets its median and spread.

A machine has other work, and its clock changes. Whatever lasts longer than a round meets all
contestants alike, and a median does not mind what is shorter; so ratios hold where times do not.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

Run = Callable[[], object]
Say = Callable[[int, int], None]  # (done, total)


@dataclass(frozen=True)
class Times:
    """Seconds of every round."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Half of the times lie within so many seconds of each other (interquartile range)."""
        if len(self.seconds) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return high - low


def in_turns(
    contestants: Mapping[str, Run], rounds: int, device: str, say: Say
) -> dict[str, Times]:
    """Everybody once without a clock, then `rounds` rounds in which everybody has a turn."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    turns = [name for _ in range(rounds + 1) for name in contestants]
    for turn, name in enumerate(turns):
        say(turn, len(turns))
        taken = timed(contestants[name], device)
        if turn >= len(contestants):
            seconds[name].append(taken)
    say(len(turns), len(turns))
    return {name: Times(tuple(taken)) for name, taken in seconds.items()}


def timed(run: Run, device: str) -> float:
    """Seconds until the work is done, not only handed to the device."""
    if device == "cuda":
        return _timed_on_gpu(run)
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _timed_on_gpu(run: Run) -> float:
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before.record()
    run()
    after.record()
    after.synchronize()
    return before.elapsed_time(after) / 1000


def ratio(times: Mapping[str, Times], of: str, to: str) -> float:
    """Median over the rounds of the ratio within a round."""
    pairs = zip(times[of].seconds, times[to].seconds, strict=True)
    return statistics.median(a / b for a, b in pairs)
