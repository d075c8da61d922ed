"""Answers as JSON on stdout, and tables as Markdown in files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_core import to_jsonable_python


def print_json(found: Any) -> None:
    """Print models, alone or within lists, dicts and dataclasses, as one JSON document. As over
    HTTP, a number that is not finite is null, unlike in a model's own JSON. A path that is not
    UTF-8 is escaped; pydantic would refuse it."""
    plain = to_jsonable_python(to_jsonable_python(found), inf_nan_mode="null")
    print(json.dumps(plain, indent=2, allow_nan=False))


def markdown_table(heads: Sequence[str], lines: Iterable[Sequence[str]], align: str = "---") -> str:
    """A table in Markdown; `align` is the rule under every column but the first."""
    rule = ["---", *[align] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *lines))
