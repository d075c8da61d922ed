"""Which learners a coordinator takes over from the one before it, without I/O.

A learner does one attempt of a run, and the registry says which attempt of a run is the one that
runs. So neither a learner that was given up nor a result that was recorded is counted again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Attempt(NamedTuple):
    """One start of a run; the registry counts them."""

    run_id: str
    number: int


class Inherited(NamedTuple):
    """Learners that go on, and those that are ended. A run that runs and is in neither has lost its
    learner, and is started again."""

    adopted: frozenset[Attempt]
    orphans: frozenset[Attempt]


def inherited(running: Iterable[Attempt], there: Iterable[Attempt]) -> Inherited:
    """`running`: as the registry says; `there`: whose learners live, or are about to."""
    wanted, found = frozenset(running), frozenset(there)
    return Inherited(wanted & found, found - wanted)
