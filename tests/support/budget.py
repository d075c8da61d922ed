"""How long the tests search: TACL_TEST_BUDGET is `dev` (when unset), `ci` or `nightly`.

A budget changes how many examples, moments and kills a property is tried with, never the property.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

SHARES = {"dev": 0.2, "ci": 1.0, "nightly": 10.0}
CHOSEN = os.environ.get("TACL_TEST_BUDGET", "dev")
if CHOSEN not in SHARES:
    raise ValueError(f"TACL_TEST_BUDGET is {CHOSEN!r}; it may be {', '.join(SHARES)}")
Case = TypeVar("Case")
EXAMPLES = 100  # of a property that sets no number


def budget(ci: int, *, nightly: int | None = None) -> int:
    """The number for this budget, of a number `ci`; at least 1."""
    if nightly is not None and CHOSEN == "nightly":
        return nightly
    return max(1, round(ci * SHARES[CHOSEN]))


def some(cases: Sequence[Case]) -> Sequence[Case]:
    """Every third of several similar cases if the budget is small, else all."""
    return cases[::3] if CHOSEN == "dev" else cases


def seconds(ci: int) -> float:
    """A time limit for what a large budget makes longer; a small budget does not shorten it."""
    return ci * max(1.0, SHARES[CHOSEN])


def load_profile() -> None:
    """Register a profile of hypothesis for each budget, for properties that set no number, and load
    the chosen one; `--hypothesis-profile` selects another. There is no deadline: the first call of
    a test includes imports, and machines are shared."""
    for name, share in SHARES.items():
        examples = round(EXAMPLES * share)
        settings.register_profile(name, deadline=None, max_examples=examples)
    settings.load_profile(CHOSEN)
