"""Which learners a coordinator takes over from the previous one, without I/O.

A learner does one attempt of a run, and the registry says which attempt of a run is current. So
neither a learner that was given up nor a result that was recorded counts again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Attempt(NamedTuple):
    """One start of a run; the registry counts them."""

    run_id: str
    number: int


class Inherited(NamedTuple):
    """Learners that continue, and those that are ended. A run that runs and is in neither has lost
    its learner, and is started again."""

    adopted: frozenset[Attempt]
    orphans: frozenset[Attempt]


def inherited(running: Iterable[Attempt], there: Iterable[Attempt]) -> Inherited:
    """`running`: the current attempts in the registry; `there`: those that learners do, or will."""
    wanted, found = frozenset(running), frozenset(there)
    return Inherited(wanted & found, found - wanted)
