"""How long the tests search: TACL_TEST_BUDGET is `dev` (when unset), `ci` or `nightly`.

A budget changes how many examples, moments and kills a property is tried with, never what it says.
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
EXAMPLES = 100  # of a property that names no number


def budget(ci: int, *, nightly: int | None = None) -> int:
    """How many of what `ci` tries; at least one."""
    if nightly is not None and CHOSEN == "nightly":
        return nightly
    return max(1, round(ci * SHARES[CHOSEN]))


def some(cases: Sequence[Case]) -> Sequence[Case]:
    """Of cases that differ little: each third where the budget is small."""
    return cases[::3] if CHOSEN == "dev" else cases


def seconds(ci: int) -> float:
    """A limit of time for what the budget prolongs; a small one is done no sooner by force."""
    return ci * max(1.0, SHARES[CHOSEN])


def load_profile() -> None:
    """Of hypothesis: one for each budget, for properties that name no number; the chosen one is
    loaded, `--hypothesis-profile` takes another. The first call of a test pays for imports, and
    machines are shared: time is no property."""
    for name, share in SHARES.items():
        examples = round(EXAMPLES * share)
        settings.register_profile(name, deadline=None, max_examples=examples)
    settings.load_profile(CHOSEN)
