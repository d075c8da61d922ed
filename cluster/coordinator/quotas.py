"""How much of the cluster a user over HTTP may take: runs that are owed, minutes that runs take
within a day, and bytes that are kept.

Whoever asks beside the cluster, and an admin, is not limited.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

from cluster.coordinator.shell import Shell
from cluster.domain.base import RequestContext
from cluster.domain.status import OWED, RunState
from cluster.domain.users import Usage
from cluster.registry import Ran
from cluster.registry.ran import DAY, HOUR
from tacl.errors import TooMany

QUEUED = 32  # runs that wait or run: trainings, compositions and evaluations
RAN = 24 * 60  # minutes within a day: one run all day long, or several for a part of it
STORED = 64 << 30  # bytes: the samples and vectors of the user's tasks


def require_share(usage: Usage, wait: int = 60) -> None:
    """Of what it would be; `wait`: seconds until there are minutes again. Raises TooMany."""
    if usage.queued > QUEUED:
        raise TooMany(f"{usage.user} has {QUEUED} runs queued already; wait until one has ended")
    if usage.ran >= RAN:
        raise TooMany(
            f"runs of {usage.user} took {usage.ran} minutes within a day, of {RAN}; those that are "
            "queued go on, others may follow later",
            wait,
        )
    if usage.stored > STORED:
        raise TooMany(
            f"{usage.user} would have {usage.stored / 2**30:.1f} GiB stored, and may have "
            f"{STORED >> 30}; remove a task with `--purge`",
            3600,
        )


def minutes(ran: Ran) -> int:
    return int(sum(ran.values()) // 60)


def wait(ran: Ran, now: float) -> int:
    """Seconds until so much of it lies more than a day back that there are minutes again."""
    left, at = dict(ran), now
    for hour in sorted(ran):
        if minutes(left) < RAN:
            break
        del left[hour]
        at = (hour + DAY) * HOUR
    return math.ceil(max(at - now, 1.0))


class Quotas(Shell):
    """Methods of `cluster.domain.api.CoordinatorAPI`."""

    def usage(self, whose: str | None = None, after: str = "") -> list[Usage]:
        with self._lock:
            users = self._registry.users_after(after) if whose is None else [whose]
            owed, ran = self._registry.owed_of(users), self._registry.ran_of(users)
            return [self._usage(user, owed[user], ran[user]) for user in users]

    def _usage(self, user: str, runs: int, ran: Ran, more: Iterable[str] = ()) -> Usage:
        """With so many runs, and these blobs more."""
        stored = self._registry.stored_of(user)
        fitted = self._execution.heads.blobs({one.task for one in stored.values()})
        return Usage(
            user=user,
            queued=runs,
            queued_most=QUEUED,
            ran=minutes(ran),
            ran_most=RAN,
            stored=self._blobs.size({*stored, *fitted, *more}),
            stored_most=STORED,
        )

    def _require_share(
        self,
        context: RequestContext,
        user: str,
        run_id: str = "",
        more: Iterable[str] = (),
        runs: int = 1,
    ) -> None:
        """So many runs more, unless there is this one, and these blobs."""
        if not context.limited:
            return
        if run_id and self._registry.runs(states=(*OWED, RunState.DONE), run_ids=[run_id]):
            return
        owed, ran = self._registry.owed_of([user])[user], self._registry.ran_of([user])[user]
        require_share(self._usage(user, owed + runs, ran, more), wait(ran, time.time()))
