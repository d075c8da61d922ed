"""Garbage collections of a process that keeps much for long, as the coordinator of a large home.

Each full collection looks through everything that was not frozen: a third of a second at ten
thousand tasks, in which nobody is answered. So what a full collection leaves is frozen, and they
come more often: each looks at the little that came since the last. What is freed by its last
reference, as nearly everything here, is freed all the same; a cycle of objects that was in use
during a full collection waits for the one of a day that looks at everything.
"""

from __future__ import annotations

import gc
import time

FULL = 2  # the oldest generation
OFTEN = 2  # of so many collections of the one before, each of thousands of new objects, one is full
DAY = 24 * 3600.0


class GcTuning:
    """From its making until `release`."""

    def __init__(self) -> None:
        self._thresholds, self._whole = gc.get_threshold(), time.monotonic()
        gc.set_threshold(*self._thresholds[:FULL], OFTEN)
        gc.collect()
        gc.freeze()
        gc.collect()  # of nothing: else the next waits until a quarter of all that is frozen is new
        gc.callbacks.append(self._collected)

    def release(self) -> None:
        """Everything is as before."""
        gc.callbacks.remove(self._collected)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase != "stop" or info["generation"] != FULL:
            return
        if time.monotonic() - self._whole < DAY:
            gc.freeze()
        else:
            self._whole = time.monotonic()
            gc.unfreeze()  # for the next one
