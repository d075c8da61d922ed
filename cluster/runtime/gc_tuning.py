"""Garbage collection in a process that keeps many objects for long, such as the coordinator.

Each full collection examines every object that is not frozen: a third of a second at ten thousand
tasks, in which nobody is answered. So the objects that survive a full collection are frozen, and
full collections are made more often: each examines only the few objects made since the last. What
is freed with its last reference, as nearly everything here, is freed all the same; a reference
cycle that was in use during a full collection is freed by the one of each day that examines all.
"""

from __future__ import annotations

import gc
import time

FULL = 2  # the oldest generation
OFTEN = 2  # collections of the generation before, each of thousands of new objects, for a full one
DAY = 24 * 3600.0


class GcTuning:
    """In effect from its construction until `release`."""

    def __init__(self) -> None:
        self._thresholds, self._whole = gc.get_threshold(), time.monotonic()
        gc.set_threshold(*self._thresholds[:FULL], OFTEN)
        gc.collect()
        gc.freeze()
        gc.collect()  # empty: else the next waits until new objects are a quarter of the frozen
        gc.callbacks.append(self._collected)

    def release(self) -> None:
        """Restore the previous settings."""
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
            gc.unfreeze()  # the next full collection examines everything
