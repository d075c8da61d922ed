"""How long a training does its steps without asking again: the longer, the more trainings run and
the longer the coordinator takes to answer one.

One coordinator answers all of them. With longer leases a training learns later what arrived or was
removed, and the coordinator how far the training is.
"""

from __future__ import annotations

from dataclasses import dataclass

SHORTEST, LONGEST = 2.0, 10.0  # seconds
SHARE = 0.4  # of one core, for answering leases; the rest is for people
COST, DEAREST = 0.002, 0.01  # CPU seconds that an answer takes, at least and at most
WINDOW = 200  # answers of which the cost is the mean


def lease_seconds(trainings: int, cost: float = COST) -> float:
    """The seconds of a lease while this number of trainings run: answering them takes no more than
    SHARE, unless there are so many that even leases of LONGEST are too short."""
    return min(LONGEST, max(SHORTEST, trainings * cost / SHARE))


@dataclass
class Leases:
    """What an answer costs the coordinator, measured in its process."""

    cost: float = COST
    _answers: int = 0
    _before: float | None = None  # CPU seconds of the process when the window began

    def seconds(self, trainings: int, taken: float) -> float:
        """The seconds of the next lease. `taken`: CPU seconds of the process until now. They count
        whatever it did: what it does beside answering is bounded by DEAREST."""
        if self._before is None:
            self._before = taken
        self._answers += 1
        if self._answers == WINDOW:
            self.cost = min(DEAREST, max(COST, (taken - self._before) / WINDOW))
            self._answers, self._before = 0, taken
        return lease_seconds(trainings, self.cost)
