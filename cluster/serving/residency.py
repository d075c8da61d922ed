"""A cache for what can be read again: the least recently used values are dropped first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class Residency:
    """Values by name, within `most` bytes; the least recently used are dropped first.

    Values that the current batch has used stay until its end, even if they alone are more than
    `most`. A value that is being read comes on top.
    """

    def __init__(self, most: int) -> None:
        self.most, self.bytes = most, 0
        self.hits = self.misses = 0  # in a batch each name counts once
        self._kept: dict[str, tuple[Any, int]] = {}  # value and bytes, the last used last
        self._used: set[str] = set()  # names used by this batch, so the last ones of `_kept`

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Keep what is requested in the block until its end. One batch at a time."""
        try:
            yield
        finally:
            self._used.clear()
            self._shrink(self.most)

    def get(self, name: str, read: Callable[[str], T], size: Callable[[T], int]) -> T:
        """The value of a name, read unless it is in memory. `size`: bytes of a value. Raises what
        `read` raises."""
        if name in self._used:
            return self._kept[name][0]
        if name in self._kept:
            self.hits += 1
            self._kept[name] = self._kept.pop(name)
        else:
            self.misses += 1
            value = read(name)
            needed = size(value)
            self._shrink(self.most - needed)
            self._kept[name] = value, needed
            self.bytes += needed
        self._used.add(name)
        return self._kept[name][0]

    def values(self) -> list[Any]:
        """All values in memory; may be called while another thread calls `get`."""
        return [value for value, _ in list(self._kept.values())]

    def _shrink(self, most: int) -> None:
        """Drop values until at most `most` bytes are left, or only what the batch has used."""
        while self.bytes > most:
            oldest = next(iter(self._kept), None)
            if oldest is None or oldest in self._used:
                return
            self.bytes -= self._kept.pop(oldest)[1]
