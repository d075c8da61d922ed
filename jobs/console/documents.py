"""Answers as JSON on stdout, and tables as Markdown in files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_core import to_json, to_jsonable_python


def print_json(found: Any) -> None:
    """One document of models, alone or inside lists, dicts and dataclasses. As over HTTP: what is
    not finite is null, which a model by itself would not say."""
    plain = to_jsonable_python(found)
    print(to_json(plain, indent=2, inf_nan_mode="null", ensure_ascii=True).decode())


def markdown_table(heads: Sequence[str], lines: Iterable[Sequence[str]], align: str = "---") -> str:
    """`align` is the rule under every column but the first."""
    rule = ["---", *[align] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *lines))
