"""For how long a training does its steps without asking again: the more of them run, the longer.

One coordinator answers all of them. What arrives or is removed meanwhile, and how far they are, is
heard of as much later.
"""

from __future__ import annotations

SHORTEST, LONGEST = 2.0, 10.0  # seconds
ANSWERS = 200  # a second, of one coordinator, beside which it has time for people


def lease_seconds(trainings: int) -> float:
    """Of a lease while so many run: together they ask no more than ANSWERS times a second, but for
    so many that not even leases of LONGEST are enough."""
    return min(LONGEST, max(SHORTEST, trainings / ANSWERS))
