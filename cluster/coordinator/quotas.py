"""How much of the cluster a user over HTTP may take: runs that are owed, and bytes that are kept.

Whoever asks beside the cluster, and an admin, is not limited.
"""

from __future__ import annotations

from collections.abc import Iterable

from cluster.coordinator.shell import Shell
from cluster.domain.base import RequestContext
from cluster.domain.status import OWED, RunState
from cluster.domain.users import Usage
from tacl.errors import TooMany

QUEUED = 32  # runs that wait or run: trainings, compositions and evaluations
STORED = 64 << 30  # bytes: the samples and vectors of the user's tasks


def require_share(usage: Usage) -> None:
    """Of what it would be. Raises TooMany."""
    if usage.queued > QUEUED:
        raise TooMany(f"{usage.user} has {QUEUED} runs queued already; wait until one has ended")
    if usage.stored > STORED:
        raise TooMany(
            f"{usage.user} would have {usage.stored / 2**30:.1f} GiB stored, and may have "
            f"{STORED >> 30}; remove a task with `--purge`",
            3600,
        )


class Quotas(Shell):
    """Methods of `cluster.domain.api.CoordinatorAPI`."""

    def usage(self, whose: str | None = None, after: str = "") -> list[Usage]:
        with self._lock:
            users = self._registry.users_after(after) if whose is None else [whose]
            owed = self._registry.owed_of(users)
            return [self._usage(user, owed[user]) for user in users]

    def _usage(self, user: str, runs: int, more: Iterable[str] = ()) -> Usage:
        """With so many runs, and these blobs more."""
        stored = self._registry.stored_of(user)
        fitted = self._execution.heads.blobs({one.task for one in stored.values()})
        return Usage(
            user=user,
            queued=runs,
            queued_most=QUEUED,
            stored=self._blobs.size({*stored, *fitted, *more}),
            stored_most=STORED,
        )

    def _require_share(
        self, context: RequestContext, user: str, run_id: str = "", more: Iterable[str] = ()
    ) -> None:
        """One run more, unless there is this one, and these blobs."""
        if not context.limited:
            return
        if run_id and self._registry.runs(states=(*OWED, RunState.DONE), run_ids=[run_id]):
            return
        owed = self._registry.owed_of([user])[user]
        require_share(self._usage(user, owed + 1, more))
