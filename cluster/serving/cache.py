"""Models that are asked often, composed once: bounded by bytes, whatever the number of users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tacl.vectors.params import Params

OFTEN = 32  # times asked before a model is composed at all: that costs as much as some passes
REMEMBERED = 10_000  # models whose number of times is kept


class ComposedCache:
    """The models that were asked most, as many as fit: of one base all are of one size. A newcomer
    must be asked twice as often as the least asked one to take its place, so that many equal ones
    do not push each other out."""

    def __init__(self, most: int) -> None:
        self._most, self._asked = most, Counter[str]()
        self.kept: dict[str, Params] = {}

    def asked(self, digest: str, compose: Callable[[], Params]) -> bool:
        """Whether this model is kept composed now."""
        if len(self._asked) > REMEMBERED:  # half of what was; what is rare is forgotten
            self._asked = Counter({name: n // 2 for name, n in self._asked.items() if n > 1})
        self._asked[digest] += 1
        if digest not in self.kept and self._asked[digest] >= OFTEN and self._has_place(digest):
            self.kept[digest] = compose()
        return digest in self.kept

    def _has_place(self, digest: str) -> bool:
        """Made, where there was none."""
        if len(self.kept) < self._most:
            return True
        least = min(self.kept, key=self._asked.__getitem__, default=None)
        if least is None or self._asked[digest] < 2 * self._asked[least]:
            return False
        del self.kept[least]
        return True
