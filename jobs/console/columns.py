"""Tables without their empty columns, and in parts if they are too wide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table

ANY = 1000  # width of a screen on which everything fits


def table(*columns: str, right: Iterable[str] = ()) -> Table:
    """A table of left-aligned words and right-aligned numbers; long cells are folded, not cut."""
    numbers = set(right)
    return _plain(
        Column(name, justify="right" if name in numbers else "left", overflow="fold")
        for name in columns
    )


def _plain(columns: Iterable[Column]) -> Table:
    return Table(*columns, box=None, pad_edge=False, header_style="bold")


def without_empty(made: Table) -> Table:
    """A new table without the empty columns: Rich measures a column by its place."""
    return _of([one for one in made.columns if any(map(str, one.cells))])


def _of(columns: Sequence[Column]) -> Table:
    again = _plain(one.copy() for one in columns)
    for cells in zip(*(one.cells for one in columns), strict=True):
        again.add_row(*cells)
    return again


def fitting(names: Sequence[str], first: int) -> list[list[str]]:
    """The names in groups, each of which fits beside a first column of this width."""
    parts: list[list[str]] = [[]]
    left = room = Console().width - first
    for name in names:
        width = max(len(name), 5) + 2
        if width > left and parts[-1]:
            parts.append([])
            left = room
        parts[-1].append(name)
        left -= width
    return parts


@dataclass(frozen=True)
class OneOrMore:
    """`whole` if it fits, else `parts`, whose words are not folded either."""

    whole: Table
    parts: tuple[Table, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        needed = Measurement.get(console, options.update(width=ANY), self.whole).maximum
        if needed <= options.max_width:
            yield self.whole
            return
        for number, part in enumerate(self.parts):
            yield from [""] * bool(number)
            yield part


def in_parts(whole: Table, *parts: Sequence[str]) -> OneOrMore:
    """If the table is too wide: parts, each the first column and those with the given headers."""
    first, *others = whole.columns
    chosen = ([one for one in others if one.header in headers] for headers in parts)
    return OneOrMore(whole, tuple(_of([first, *columns]) for columns in chosen))
