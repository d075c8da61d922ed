"""For how long a training does its steps without asking again: the more of them run, and the longer
an answer takes the coordinator, the longer.

One coordinator answers all of them. What arrives or is removed meanwhile, and how far they are, is
heard of as much later.
"""

from __future__ import annotations

from dataclasses import dataclass

SHORTEST, LONGEST = 2.0, 10.0  # seconds
SHARE = 0.4  # of one core, with which it answers; the rest is for people
COST, DEAREST = 0.002, 0.01  # seconds of the processor that an answer takes, at least and at most
WINDOW = 200  # answers of which that is the mean


def lease_seconds(trainings: int, cost: float = COST) -> float:
    """Of a lease while so many run: answering them takes no more than SHARE, but for so many that
    not even leases of LONGEST are enough."""
    return min(LONGEST, max(SHORTEST, trainings * cost / SHARE))


@dataclass
class Leases:
    """What answers cost the coordinator that gives them, on its machine."""

    cost: float = COST
    _answers: int = 0
    _before: float | None = None  # what its process had taken of the processor, in seconds

    def seconds(self, trainings: int, taken: float) -> float:
        """Of the next lease. `taken`: by the process of the processor until now, in seconds, for
        whatever it did: what it does beside answering is bounded by DEAREST."""
        if self._before is None:
            self._before = taken
        self._answers += 1
        if self._answers == WINDOW:
            self.cost = min(DEAREST, max(COST, (taken - self._before) / WINDOW))
            self._answers, self._before = 0, taken
        return lease_seconds(trainings, self.cost)
