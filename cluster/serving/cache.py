"""Keeps often-queried models composed, within a limit of bytes whatever the number of users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tacl.vectors.params import Params

OFTEN = 32  # queries before a model is composed, which costs as much as some passes
REMEMBERED = 10_000  # models whose queries are counted


class ComposedCache:
    """The most-queried models, composed, at most `most`: all models of a base have the same size.
    A model replaces the least-queried one only if it was queried twice as often, so that many
    equally popular ones do not push each other out."""

    def __init__(self, most: int) -> None:
        self._most, self._asked = most, Counter[str]()
        self.kept: dict[str, Params] = {}

    def count(self, digest: str, compose: Callable[[], Params]) -> bool:
        """Count a query of a model; returns whether the model is kept composed now."""
        if len(self._asked) > REMEMBERED:  # halve all counts; models with one query are forgotten
            self._asked = Counter({name: n // 2 for name, n in self._asked.items() if n > 1})
        self._asked[digest] += 1
        if digest not in self.kept and self._asked[digest] >= OFTEN and self._has_place(digest):
            self.kept[digest] = compose()
        return digest in self.kept

    def _has_place(self, digest: str) -> bool:
        """Whether a model gets a place, if need be that of the least-queried one."""
        if len(self.kept) < self._most:
            return True
        least = min(self.kept, key=self._asked.__getitem__, default=None)
        if least is None or self._asked[digest] < 2 * self._asked[least]:
            return False
        del self.kept[least]
        return True
