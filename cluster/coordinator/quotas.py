"""How much of the cluster a user over HTTP may take: runs that are owed, and bytes that are kept.

Whoever asks beside the cluster, and an admin, is not limited.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from cluster.coordinator.shell import Shell
from cluster.coordinator.views import user_of
from cluster.domain.base import RequestContext
from cluster.domain.status import OWED, RunState
from cluster.domain.users import Usage
from cluster.domain.work import TrainWork, Work
from tacl.errors import TooMany

QUEUED = 32  # runs that wait or run: trainings, compositions and evaluations
STORED = 64 << 30  # bytes: the samples and vectors of the user's tasks


def asked_by(work: Work) -> str | None:
    """Who asked for it; None for what the plan asked for itself."""
    return work.submission.owner if isinstance(work, TrainWork) else user_of(work)


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

    def usage(self) -> list[Usage]:
        with self._lock:
            owners = {task.submission.owner for task in self._registry.tasks(with_removed=True)}
            asking = {asked_by(run.work) for run in self._registry.runs(states=OWED)}
            known = owners | asking | {token.user for token in self._registry.tokens()}
            return self._usage(sorted(filter(None, known)))

    def _usage(self, users: Iterable[str], runs: int = 0, more: Iterable[str] = ()) -> list[Usage]:
        """With so many runs and these blobs more."""
        owed = Counter(asked_by(run.work) for run in self._registry.runs(states=OWED))
        tasks = self._registry.tasks(with_removed=True)
        owners = {task.name: task.submission.owner for task in tasks}
        blobs: dict[str | None, set[str]] = defaultdict(set)
        for digest, one in self._registry.referenced().items():
            blobs[owners.get(one.task)].add(digest)
        return [
            Usage(
                user=user,
                queued=owed[user] + runs,
                queued_most=QUEUED,
                stored=self._blobs.size(blobs[user].union(more)),
                stored_most=STORED,
            )
            for user in users
        ]

    def _require_share(
        self, context: RequestContext, user: str, run_id: str = "", more: Iterable[str] = ()
    ) -> None:
        """One run more, unless there is this one, and these blobs."""
        if not context.limited:
            return
        if run_id and self._registry.runs(states=(*OWED, RunState.DONE), run_id=run_id):
            return
        (usage,) = self._usage([user], 1, more)
        require_share(usage)
