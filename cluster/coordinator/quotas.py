"""How much of the cluster a user over HTTP may take: runs that are owed, minutes that runs take
within a day, and bytes that are kept.

Whoever asks beside the cluster, and an admin, is refused nothing; their runs take turns as all do.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from cluster.coordinator import shares
from cluster.coordinator.shares import minutes, require_share, wait
from cluster.coordinator.shell import Shell
from cluster.domain.base import RequestContext
from cluster.domain.status import OWED, RunState
from cluster.domain.users import Usage
from cluster.registry import Ran


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
            queued_most=shares.QUEUED,
            ran=minutes(ran),
            ran_most=shares.RAN,
            stored=self._blobs.size({*stored, *fitted, *more}),
            stored_most=shares.STORED,
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
