"""Rows that cannot be used: all are collected first, then reported together with their lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tacl.errors import TaclError

SHOWN = 10  # of many bad rows


@dataclass(frozen=True)
class Bad:
    """The reason why a row is bad, in place of its class or input."""

    why: str


@dataclass(frozen=True)
class RowNames:
    """How messages name rows: the number in a split, from 0, and the line in the file if known."""

    lines: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])

    def of(self, split: str, row: int) -> str:
        line = f" (line {self.lines[split][row]})" if split in self.lines else ""
        return f"row {row} of split {split}{line}"


def listed(wrong: Sequence[str]) -> str:
    """One text of the first ten reasons, and how many there are in all."""
    count = f"{len(wrong)} bad rows: " if len(wrong) > 1 else ""
    more = f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
    return count + "; ".join(wrong[:SHOWN]) + more


def require_good(
    found: Iterable[Sequence[object]], error: type[TaclError], advice: str = ""
) -> None:
    """Raises `error` if a row is bad; `advice` ends the message."""
    if wrong := [one.why for rows in found for one in rows if isinstance(one, Bad)]:
        raise error(listed(wrong) + advice)
