"""Answers as JSON on stdout, and tables as Markdown in files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_core import to_jsonable_python


def print_json(found: Any) -> None:
    """One document of models, alone or inside lists, dicts and dataclasses."""
    print(json.dumps(_finite(to_jsonable_python(found)), indent=2, allow_nan=False))


def _finite(found: Any) -> Any:
    """As over HTTP: what is not finite is null."""
    if isinstance(found, float):
        return found if math.isfinite(found) else None
    if isinstance(found, dict):
        return {key: _finite(value) for key, value in found.items()}
    return [_finite(one) for one in found] if isinstance(found, list) else found


def markdown_table(heads: Sequence[str], lines: Iterable[Sequence[str]], align: str = "---") -> str:
    """`align` is the rule under every column but the first."""
    rule = ["---", *[align] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *lines))
