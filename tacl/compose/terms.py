"""The terms of a recipe as a person writes them: [+|-][COEFFICIENT*]NAME[@ALIAS|@vN].

Does not import torch, so that a recipe can be checked where it is typed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from tacl.errors import BadRecipe

GRAMMAR = "[+|-][COEFFICIENT*]NAME[@ALIAS|@vN], such as +faces, -0.5*digits, signs@v2, x@champion"
Merge = Literal["ties", "tsv", "iso"]  # makes one vector of all
MERGES = get_args(Merge)
KEEPING = ("sum", "grid", *MERGES)  # the recipe's signs and coefficients
LARGEST = 1e6  # coefficient: features under it are far from what float32 cannot hold
_TERM = re.compile(
    r"(?P<sign>[+-]?)"
    r"(?:(?P<coefficient>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)\*)?"
    r"(?P<name>[A-Za-z0-9_][A-Za-z0-9_.-]*)"
    r"(?:@(?:v(?P<version>[1-9]\d{0,8})|(?P<alias>[A-Za-z_][A-Za-z0-9_.-]*)))?"
)
_VERSION_LIKE = re.compile(r"v\d+")


@dataclass(frozen=True)
class Term:
    """A coefficient times a vector: the task's current one, unless a version or alias is given."""

    coefficient: float
    name: str
    version: int | None = None
    alias: str | None = None

    def __str__(self) -> str:
        """Text of the term, such that parse_term(str(term)) == term."""
        sign = "-" if self.coefficient < 0 else "+"
        size = abs(self.coefficient)
        factor = "" if size == 1 else f"{size!r}*"
        return f"{sign}{factor}{self.vector}"

    @property
    def vector(self) -> str:
        """NAME[@ALIAS|@vN]"""
        reference = f"v{self.version}" if self.version is not None else self.alias
        return self.name if reference is None else f"{self.name}@{reference}"


def parse_term(text: str) -> Term:
    """The term that `text` writes; raises BadRecipe with the grammar."""
    match = _TERM.fullmatch(text.strip())
    if not match or (match["alias"] and _VERSION_LIKE.fullmatch(match["alias"])):
        raise BadRecipe(f"{text!r} is no term of a recipe; a term is {GRAMMAR}")
    size = float(match["coefficient"] or 1)
    if not 0 < size <= LARGEST:
        raise BadRecipe(
            f"{text!r}: the coefficient {size:g} must be above 0 and at most {LARGEST:,.0f}; write "
            "such a one, or leave the term out"
        )
    version = int(match["version"]) if match["version"] else None
    sign = -1.0 if match["sign"] == "-" else 1.0
    return Term(sign * size, match["name"], version, match["alias"])


def parse_recipe(texts: Sequence[str]) -> list[Term]:
    """The terms of a recipe: at least one, and no vector twice; raises BadRecipe."""
    if not texts:
        raise BadRecipe(f"a recipe needs at least one term; a term is {GRAMMAR}")
    terms = [parse_term(text) for text in texts]
    counts = Counter(term.vector for term in terms)
    twice = sorted(vector for vector, count in counts.items() if count > 1)
    if twice:
        raise BadRecipe(f"{', '.join(twice)} more than once; write one term with the coefficient")
    return terms


def require_additions(coefficients: Sequence[float], method: str, unlearns: bool = False) -> None:
    """Raises BadRecipe if a method that finds its own coefficients is given any but 1, or, if it
    `unlearns` tasks too, any but 1 and -1."""
    others = ", ".join(KEEPING)
    advice = f"leave signs and coefficients out, or use {others}, which keep them"
    if unlearns:
        advice = f"write +NAME for a task to learn, -NAME for one to unlearn, or use {others}"
    if lost := [c for c in coefficients if c != 1 and not (unlearns and c == -1)]:
        raise BadRecipe(f"{method} finds the coefficients itself and cannot keep {lost}; {advice}")


def require_kept(terms: Sequence[Term], method: str) -> None:
    """Raises BadRecipe if a method that unlearns subtracted tasks has no task to keep, or a task is
    both added and subtracted."""
    kept = {term.name for term in terms if term.coefficient > 0}
    if not kept:
        raise BadRecipe(
            f"{method} unlearns a task while it keeps others, and this recipe adds none; add at "
            "least one, or use sum"
        )
    if both := kept & {term.name for term in terms if term.coefficient < 0}:
        raise BadRecipe(f"{method} can learn or unlearn {', '.join(sorted(both))}, not both")


def parse_selection(how: str, vectors: int) -> tuple[str, int]:
    """(kind, B) of `blockwise:B`, `whole:B` or `random:B`; B vectors are learned for each block.
    Raises BadRecipe."""
    kind, _, number = how.partition(":")
    if kind not in ("blockwise", "whole", "random") or not number.isdecimal():
        raise BadRecipe(f"{how!r} selects nothing; blockwise:B, whole:B or random:B do")
    if not 1 <= (most := int(number)) <= vectors:
        raise BadRecipe(f"{how!r}: there are {vectors} vectors, keep 1 to {vectors} of them")
    return kind, most
