"""Which learner does the next piece of work, without I/O.

Starting a process, importing torch and loading the base takes as long as a short training. So a
learner whose work ended well waits briefly, and does what is started next if that needs the same
room. What it holds meanwhile counts as free: any other start ends it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from cluster.scheduler.state import Needs

RUNS = 20  # of one learner, so that what libraries leave behind does not add up
SECONDS = 3.0  # that an idle learner waits


class IdleLearner(NamedTuple):
    """A learner whose work ended well, at `since` seconds of a clock, and what it reserved."""

    learner: str
    needs: Needs
    since: float


class Next(NamedTuple):
    """The learner that does a piece of work, None for a new one; and the learners to end now, so
    that it has the room that they hold."""

    learner: IdleLearner | None
    ended: frozenset[str]


def is_reusable(needs: Needs, runs: int, most: int = RUNS) -> bool:
    """Whether a learner whose work ended well may do more. One that leads a group does not: it
    holds nothing itself, and its workers have gone."""
    return needs.workers == 1 and runs < most


def next_learner(idle: Collection[IdleLearner], needs: Needs, there: Collection[str]) -> Next:
    """Of the learners that are `there` and reserved what is needed now, the one that has waited
    least. If none did, all are ended: only the cluster knows which of them is in the way."""
    same = [one for one in idle if one.needs == needs and one.learner in there]
    if same:
        return Next(max(same, key=lambda one: one.since), frozenset())
    return Next(None, frozenset(one.learner for one in idle))


def late(idle: Collection[IdleLearner], now: float) -> frozenset[str]:
    """The learners that have waited for longer than SECONDS."""
    return frozenset(one.learner for one in idle if now - one.since > SECONDS)
