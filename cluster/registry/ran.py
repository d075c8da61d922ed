"""How long the runs of each user ran, by the hour in which they ended; of a day back."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping

import sqlalchemy as sa

from cluster.domain.status import RunState
from cluster.registry.database import Database, one, put
from cluster.registry.schema import RAN, RUN

HOUR = 3600
DAY = 24  # hours
Ran = Mapping[int, float]  # hours since 1970 -> seconds of runs that ended then, or run now


class RunTimes(Database):
    def ran_of(self, users: Collection[str]) -> dict[str, dict[int, float]]:
        """Of each of these users; what runs now counts as if it ended now."""
        now = time.time()
        found: dict[str, dict[int, float]] = {user: defaultdict(float) for user in users}
        ended = sa.select(RAN.c.user, RAN.c.hour, RAN.c.seconds)
        ended = ended.where(RAN.c.user.in_(users), RAN.c.hour > now // HOUR - DAY)
        runs = sa.select(RUN.c.user, RUN.c.started)
        runs = runs.where(RUN.c.user.in_(users), RUN.c.state == RunState.RUNNING)
        with self._read() as db:
            for row in db.execute(ended):
                found[row.user][row.hour] += row.seconds
            for row in db.execute(runs):
                found[row.user][int(now // HOUR)] += max(now - (row.started or now), 0.0)
        return found


def add_ran(db: sa.Connection, user: str, seconds: float) -> None:
    """Of an attempt that ends now. What is older than a day is forgotten."""
    hour = int(time.time() // HOUR)
    this = one(RAN, user=user, hour=hour)
    added = RAN.update().where(*this).values(seconds=RAN.c.seconds + seconds)
    if not db.execute(added).rowcount:
        put(db, RAN, user=user, hour=hour, seconds=seconds)
        db.execute(RAN.delete().where(RAN.c.user == user, RAN.c.hour <= hour - DAY))
