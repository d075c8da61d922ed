"""Times that can be compared: the contestants take turns, and each gets its median and spread.

A machine has other work, and its clock changes. Whatever lasts longer than a round meets all
contestants alike, and a median does not mind what is shorter; so ratios hold where times do not.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

Run = Callable[[], object]
Say = Callable[[int, int], None]  # (done, total)


@dataclass(frozen=True)
class Race:
    """Seconds of every contestant in every round."""

    seconds: Mapping[str, list[float]]

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def spreads(self) -> dict[str, float]:
        """Half of the times lie within so many seconds of each other (interquartile range)."""
        found = dict.fromkeys(self.seconds, 0.0)
        for name, times in self.seconds.items():
            if len(times) > 1:
                low, _, high = statistics.quantiles(times, n=4, method="inclusive")
                found[name] = high - low
        return found

    def ratio(self, of: str, *to: str) -> float:
        """Median over the rounds of the ratio within a round; of several the sum is taken."""
        rounds = zip(self.seconds[of], *(self.seconds[name] for name in to), strict=True)
        return statistics.median(a / sum(b) for a, *b in rounds)

    def figures(self) -> dict[str, Any]:
        """As every bench tells them."""
        medians = {f"{name}_s": self.median(name) for name in self.seconds}
        return {**medians, "spread_s": self.spreads()}


def setting(model: str, device: str, rounds: int) -> dict[str, Any]:
    """What a bench says first."""
    threads = torch.get_num_threads()
    return {"model": model, "device": device, "threads": threads, "rounds": rounds}


def in_turns(contestants: Mapping[str, Run], rounds: int, device: str, say: Say) -> Race:
    """Everybody once without a clock, then `rounds` rounds in which everybody has a turn."""
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
    """Seconds until the work is done, not only handed to the device."""
    if device != "cuda":
        start = time.perf_counter()
        run()
        return time.perf_counter() - start
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before.record()
    run()
    after.record()
    after.synchronize()
    return before.elapsed_time(after) / 1000
