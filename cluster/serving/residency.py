"""What lies in memory and can be read again: what was used last, as far as it fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class Residency:
    """What was read, by name, within `most` bytes: what was used longest ago goes first.

    What the batch that is being answered has used stays until its end, also where that alone is
    more. While something is read it comes on top.
    """

    def __init__(self, most: int) -> None:
        self.most, self.bytes = most, 0
        self.hits = self.misses = 0  # of a batch each name counts once
        self._kept: dict[str, tuple[Any, int]] = {}  # what was used last is last
        self._used: set[str] = set()  # by this batch, so the last of what is kept

    @contextmanager
    def batch(self) -> Iterator[None]:
        """What is asked for inside stays until the end. One at a time."""
        try:
            yield
        finally:
            self._used.clear()
            self._shrink(self.most)

    def get(self, name: str, read: Callable[[str], T], size: Callable[[T], int]) -> T:
        """`read`: by its name; `size`: bytes of what was read. Raises what `read` raises."""
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
        """Also while another thread asks."""
        return [value for value, _ in list(self._kept.values())]

    def _shrink(self, most: int) -> None:
        """To so many bytes, or to what the batch has used."""
        while self.bytes > most:
            oldest = next(iter(self._kept), None)
            if oldest is None or oldest in self._used:
                return
            self.bytes -= self._kept.pop(oldest)[1]
