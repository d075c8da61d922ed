"""The share of the cluster that a user may take, and whether they have taken it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from cluster.domain.users import Usage
from cluster.registry import Ran
from cluster.registry.run_times import DAY, HOUR
from tacl.errors import TooMany

QUEUED = 32  # runs that wait or run: trainings, compositions and evaluations
RAN = 24 * 60  # minutes within a day: one run all day long, or several for a part of it
WRITES = 20_000  # within an hour: requests over HTTP that change something, an admin's too
STORED = 64 << 30  # bytes: of the user's tasks and model, and of rows the next is made from


def require_share(usage: Usage, wait: int = 60) -> None:
    """Raises TooMany if this usage, as it would be, is beyond the share. `wait`: seconds until
    there are minutes again."""
    if usage.queued > QUEUED:
        raise TooMany(
            f"{usage.user} would have {usage.queued} runs queued, and may have {QUEUED}; go on "
            "when some have ended"
        )
    if usage.ran >= RAN:
        raise TooMany(
            f"runs of {usage.user} took {usage.ran} minutes within a day, of {RAN}; those that are "
            "queued go on while nobody else waits, others may follow later",
            wait,
        )
    if usage.stored > STORED:
        raise TooMany(
            f"{usage.user} would have {usage.stored / 2**30:.1f} GiB stored, and may have "
            f"{STORED >> 30}; compose a plain sum, or let who runs the home purge a task",
            3600,
        )


def minutes(ran: Ran) -> int:
    return int(sum(ran.values()) // 60)


def wait(ran: Ran, now: float) -> int:
    """Seconds until enough of it is more than a day old that there are minutes again."""
    left, at = dict(ran), now
    for hour in sorted(ran):
        if minutes(left) < RAN:
            break
        del left[hour]
        at = (hour + DAY) * HOUR
    return math.ceil(max(at - now, 1.0))


def over_quota(ran_of: Mapping[str, Ran]) -> frozenset[str]:
    """The users among these who took their minutes of the day."""
    return frozenset(user for user, ran in ran_of.items() if minutes(ran) >= RAN)


class HourlyLimiter:
    """Limits how much a user may use up within an hour."""

    def __init__(self, most: int) -> None:
        self.most = most
        # By user: start of the hour and the amount used; the hour that started first comes first.
        self._used: dict[str, tuple[float, int]] = {}

    def require(self, user: str, amount: int, what: str) -> None:
        """Use up `amount`. Raises TooMany if less is left."""
        now = time.monotonic()
        while self._used and now - next(iter(self._used.values()))[0] >= HOUR:
            del self._used[next(iter(self._used))]
        since, used = self._used.get(user, (now, 0))
        if used + amount > self.most:
            most = f"{self.most:,} {what} an hour"
            raise TooMany(f"{user} may send {most}; go on later", math.ceil(since + HOUR - now))
        self._used[user] = (since, used + amount)
