"""Garbage collections of a process that keeps much for long, as the coordinator of a large home.

Each full collection looks through everything that was not frozen: a third of a second at ten
thousand tasks, in which nobody is answered. So what a collection leaves is frozen: the next looks
at what came since. What is freed by its last reference, as nearly everything here, is freed all the
same; a cycle of objects that was in use during a full collection is not.
"""

from __future__ import annotations

import gc

FULL = 2  # the oldest generation


def keep() -> None:
    """From now on."""
    gc.collect()
    gc.freeze()
    gc.collect()  # of nothing: else the next waits until a quarter of all that is frozen is new
    gc.callbacks.append(_freeze)


def release() -> None:
    """As before `keep`."""
    gc.callbacks.remove(_freeze)
    gc.unfreeze()


def _freeze(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == FULL:
        gc.freeze()
