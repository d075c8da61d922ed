"""Messages as people see them: short in a shell, tables in a notebook."""

from __future__ import annotations

import html
import reprlib
from collections.abc import Collection, Mapping
from enum import StrEnum
from itertools import islice
from typing import ClassVar, cast

from pydantic import BaseModel

MOST = 20  # rows, and columns, of a table


class Short(reprlib.Repr):
    """Shortens long values; a message with a `__str__` of its own is shown by that."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring, self.maxother, self.maxdict = 60, 240, 6

    def repr_instance(self, x: object, level: int) -> str:
        if isinstance(x, StrEnum):
            return repr(x.value)
        return str(x) if _has_words(x) else super().repr_instance(x, level)


SHORT = Short()


class Shown(BaseModel):
    """Shows its fields that are not empty. `shown`: fields and properties to show, if not all."""

    shown: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        fields = (f"{name}={SHORT.repr(value)}" for name, value in _fields(self).items())
        return f"{type(self).__name__}({', '.join(fields)})"

    def _repr_html_(self) -> str:
        """HTML for a notebook."""
        rows = (f"<tr><th>{n}</th><td>{_cell(one)}</td></tr>" for n, one in _fields(self).items())
        return f"<table><caption>{type(self).__name__}</caption>{''.join(rows)}</table>"


def _fields(of: Shown) -> dict[str, object]:
    """What is shown of it, by name."""
    found = {name: getattr(of, name) for name in of.shown or type(of).model_fields}
    return {name: value for name, value in found.items() if value not in (None, (), {}, "")}


def _has_words(value: object) -> bool:
    return isinstance(value, BaseModel) and type(value).__str__ is not BaseModel.__str__


def _cell(value: object) -> str:
    """HTML of a value. Several messages, or a mapping of mappings, become a table."""
    if isinstance(value, str):
        return html.escape(SHORT.repr(str(value))[1:-1])
    if isinstance(value, float):
        return str(round(value, 4))
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        messages = [one for one in items if isinstance(one, Shown) and not _has_words(one)]
        if messages and len(messages) == len(items):
            return _table({str(number): _fields(one) for number, one in enumerate(messages)})
    if isinstance(value, Mapping):
        given = cast("Mapping[str, object]", value).items()
        named = {name: _fields(one) if isinstance(one, Shown) else one for name, one in given}
        if named and all(isinstance(one, Mapping) for one in named.values()):
            return _table(cast("Mapping[str, Mapping[str, object]]", named))
    return html.escape(SHORT.repr(value))


def _table(rows: Mapping[str, Mapping[str, object]]) -> str:
    """A table with a line for each row, and a column for each name that any of them has."""
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    shown = columns[:MOST]
    lines = ["".join(f"<th>{html.escape(name)}</th>" for name in ("", *shown, *_more(columns)))]
    for name, row in islice(rows.items(), MOST):
        cells = (f"<td>{_cell(row.get(column, ''))}</td>" for column in shown)
        lines.append(f"<th>{html.escape(name)}</th>{''.join(cells)}")
    lines += [f"<th>{said}</th>" for said in _more(rows)]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _more(names: Collection[str]) -> list[str]:
    return [f"and {len(names) - MOST} more"] if len(names) > MOST else []
