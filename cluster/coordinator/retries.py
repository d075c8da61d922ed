"""Retries what failed, each operation by itself and ever less often, while all else continues."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

FIRST = 0.2  # seconds; the first retry comes without a pause
LONGEST = 60.0

LOG = logging.getLogger(__name__)
Key = tuple[str, str]  # what is done, for which run


def pause_after(failures: int) -> float:
    """Seconds before the next try: 0, then doubling."""
    return min(LONGEST, FIRST * (2 ** min(failures - 1, 16) - 1))


class Failure(NamedTuple):
    count: int
    again: float  # when it is tried again
    cause: str


class Retries:
    """What failed, and when it is tried again. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[Key, Failure] = {}

    def try_now(self, key: Key, do: Callable[[], object]) -> bool:
        """Try it, unless it is too early after a failure. Returns whether it was done now."""
        before = self._failures.get(key)
        if before is not None and self._clock() < before.again:
            return False
        try:
            do()
        except Exception as error:
            count = before.count + 1 if before else 1
            pause, cause = pause_after(count), f"{type(error).__name__}: {error}"
            self._failures[key] = Failure(count, self._clock() + pause, cause)
            told = {"run_id": key[1], "error": type(error).__name__}
            LOG.exception("%s failed; retrying in %.1f s", key[0], pause, extra=told)
            return False
        self._failures.pop(key, None)
        return True

    def trouble(self, run_ids: Collection[str]) -> str | None:
        """The cause of the oldest failure of these runs. They are all that is still owed: failures
        of other runs are forgotten."""
        for key in [key for key in dict(self._failures) if key[1] not in run_ids]:
            self._failures.pop(key, None)
        # A copy: another thread may be trying something.
        return next((failure.cause for failure in dict(self._failures).values()), None)
