"""How much of the cluster a user over HTTP may take: runs that are owed, minutes that runs take
within a day, and bytes that are kept.

Whoever asks beside the cluster, and an admin, is refused nothing; their runs take turns as all do.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from cluster.coordinator.shell import Shell
from cluster.domain.base import RequestContext
from cluster.domain.status import OWED, RunState
from cluster.reading.shares import require_share, wait


class Quotas(Shell):
    """What is refused who has their share."""

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
        files = {*self._stored([user], self._execution.heads)[user], *more}
        require_share(self._usage(user, owed + runs, ran, files), wait(ran, time.time()))
