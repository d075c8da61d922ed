"""How long the runs of each user ran within the last day, by the hour in which they ended."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping

import sqlalchemy as sa

from cluster.domain.status import RunState
from cluster.registry.database import Database, chunks, equals_param, in_params, of
from cluster.registry.schema import RAN, RUN

HOUR = 3600
DAY = 24  # hours
_ENDED = sa.select(RAN.c.user, RAN.c.hour, RAN.c.seconds).where(
    in_params(RAN.c.user), RAN.c.hour > sa.bindparam("after")
)
_RUNNING = sa.select(RUN.c.user, RUN.c.started).where(
    in_params(RUN.c.user), RUN.c.state == RunState.RUNNING
)
_ADD = (
    RAN.update()
    .where(*equals_param(RAN.c.user, RAN.c.hour))
    .values(seconds=RAN.c.seconds + sa.bindparam("more"))
)
_KNOWN = sa.select(RAN.c.user).where(in_params(RAN.c.user), *equals_param(RAN.c.hour))
_FORGET = RAN.delete().where(in_params(RAN.c.user), RAN.c.hour <= sa.bindparam("until"))
Ran = Mapping[int, float]  # hours since 1970 -> seconds of runs that ended then, or run now


class RunTimes(Database):
    def run_times_of(self, users: Collection[str]) -> dict[str, dict[int, float]]:
        """By user, seconds by hour; what runs now counts as if it ended now."""
        now = time.time()
        found: dict[str, dict[int, float]] = {user: defaultdict(float) for user in users}
        key = of(user=users)
        with self._read() as db:
            for row in db.execute(_ENDED, key | {"after": now // HOUR - DAY}):
                found[row.user][row.hour] += row.seconds
            for row in db.execute(_RUNNING, key):
                found[row.user][int(now // HOUR)] += max(now - (row.started or now), 0.0)
        return found


def add_run_time(db: sa.Connection, seconds: Mapping[str, float], ended: float) -> None:
    """Add seconds of attempts that ended at `ended`, by user. What is a day older is deleted."""
    hour = int(ended // HOUR)
    for users in chunks(seconds):
        known = set(db.scalars(_KNOWN, of(user=users, hour=hour)))
        if more := [
            of(user=one, hour=hour) | {"more": seconds[one]} for one in users if one in known
        ]:
            db.execute(_ADD, more)
        if new := [{"user": one, "hour": hour} for one in users if one not in known]:
            db.execute(RAN.insert(), [row | {"seconds": seconds[row["user"]]} for row in new])
            db.execute(_FORGET, of(user=[row["user"] for row in new]) | {"until": hour - DAY})
