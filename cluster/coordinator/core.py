"""The coordinator: the one process that decides, and the only one that writes the registry.

Decisions are made in `plan`, and `executor` carries them out; the base classes of this class answer
people and learners. Every method is idempotent by the id of its request, so a caller repeats it
after a lost answer. Errors are those of `tacl.errors`; through Ray they arrive as the `cause` of a
RayTaskError.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from cluster.coordinator import garbage, views
from cluster.coordinator.accounts import AccountRequests
from cluster.coordinator.compositions import CompositionRequests
from cluster.coordinator.outdated import Outdated
from cluster.coordinator.runs import RunRequests
from cluster.coordinator.tasks import TaskRequests
from cluster.coordinator.vectors import VectorRequests
from cluster.domain.base import RequestContext
from cluster.domain.figures import CoordinatorFigures
from cluster.domain.receipts import CollectedGarbage
from cluster.domain.reports import NeededFiles
from cluster.domain.status import ClusterStatus, Resources
from cluster.scheduler.state import Forgotten
from cluster.storage.checkpoints import runs

LOOKS = 2  # passes over models without the lock: in the last one few are new


class Coordinator(TaskRequests, VectorRequests, CompositionRequests, RunRequests, AccountRequests):
    """Implements `cluster.domain.api.CoordinatorAPI` and `RunAPI`."""

    def status(
        self, context: RequestContext, since: str = "", tasks: Sequence[str] = ()
    ) -> ClusterStatus:
        with self._reading():
            self._board.update(self._state)
            view = self._view(context)
            sees = partial(views.is_visible, context, view.visibility)
            if not tasks:
                page = self._board.page(context, since, sees)
                return view.status(page, self._base, self._trouble)
            for name in tasks:
                self._seen_task(context, name)
            told = view.status(self._board.page_of(tasks), self._base, self._trouble)
            return view.narrowed(told, partial(self._board.is_visible, sees=sees))

    def version(self) -> str:
        with self._lock:
            self._board.update(self._state)
            return f"{self._board.changes} {self._trouble is not None}"

    def cluster(self) -> Resources:
        with self._lock:
            return views.room(self._state)

    def figures(self) -> CoordinatorFigures:
        with self._lock:
            return CoordinatorFigures(
                runs=views.counted(self._state),
                lock=self._lock.waiting.spent(),
                reads=self._registry.reads.spent(),
                writes=self._registry.writes.spent(),
                steps=self._steps,
                trouble=self._trouble is not None,
            )

    def references(self, context: RequestContext) -> NeededFiles:
        found = self._registry.referenced()  # without the lock: it takes a while
        with self._reading():  # later, so that the owner of each file found is known
            visibility = self._visibility(context)
        files = {
            digest: one.what if visibility.sees(one.task) else "a file of a private task"
            for digest, one in found.items()
        }
        return NeededFiles(files=files)

    def collect(self, dry_run: bool = False) -> CollectedGarbage:
        with self._reading():
            outdated = Outdated(self._execution.heads.fits, self._state)
        # Without the lock: a big store takes minutes, and so do the models of many.
        found = garbage.scan(self._place, self._registry)
        checkpointed = runs(self._place)
        for _ in range(LOOKS if not dry_run else 0):
            outdated.update(self._registry)
        with self._reading():
            unowed = [run_id for run_id in checkpointed if run_id not in self._state.runs]
            counted = found.counted(len(unowed))
            if not dry_run:
                self._erasing.collect(one.digest for one in found.blobs)
                self._execution.forget(unowed)
        if not dry_run:
            self._forget_fits(outdated)
            for path in found.files:
                path.unlink(missing_ok=True)
        return counted

    def _forget_fits(self, outdated: Outdated) -> None:
        """Forget heads that no model answers with. Their files stay until the next collection:
        somebody may be reading them. One fit at a time: each may have thousands of tasks."""
        while True:
            with self._reading():
                outdated.update(self._registry)  # at what was composed since the last look
                there = outdated.deletable(self._state, self._execution.heads.fits)
                run_ids = frozenset(there[:1])
                if not run_ids:
                    return
                with self._writing():
                    self._registry.forget_fits(run_ids)
                self._execution.answers_with(self._execution.heads.without_runs(run_ids))
                self._execution.apply_events(Forgotten(run_ids))


if TYPE_CHECKING:
    from cluster.domain.api import CoordinatorAPI, RunAPI

    def _asked_by_people(coordinator: Coordinator) -> CoordinatorAPI:
        return coordinator

    def _asked_by_runs(coordinator: Coordinator) -> RunAPI:
        return coordinator
