"""Requests about vectors: moving aliases, and reading the plan's interference matrix."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice

from cluster.coordinator import interference
from cluster.coordinator.acceptance import row_of
from cluster.coordinator.handler import Decision, RequestHandler
from cluster.domain.base import RequestContext
from cluster.domain.names import checked_alias
from cluster.domain.receipts import MovedAlias
from cluster.domain.reports import InterferenceReport, TaskInterference
from cluster.domain.tasks import CHAMPION, GENERIC, VectorRef
from cluster.scheduler.state import Promoted, VectorVersion
from tacl.errors import TooMany

ALIASES = 100  # of a task


class VectorRequests(RequestHandler):
    """Methods of `cluster.domain.api.CoordinatorAPI`."""

    def move_alias(
        self, context: RequestContext, task: str, name: str, version: int, expected: int | None
    ) -> MovedAlias:
        checked_alias(name)

        def decide() -> Decision[MovedAlias]:
            self._own_task(context, task)
            reference = self._registry.vector(task, version)
            self._require_few(task, name)

            def promote() -> None:
                if name == CHAMPION:
                    self._promoted(reference)

            answer = MovedAlias(task=task, name=name, version=version)
            write = partial(self._registry.move_alias, task, name, version, expected)
            return Decision(answer, write, promote)

        parts = {"task": task, "name": name, "version": version, "expected": expected}
        return self._once(context, "move_alias", parts, MovedAlias, decide)

    def interference(
        self, context: RequestContext, tasks: Sequence[str] = ()
    ) -> InterferenceReport:
        with self._reading():
            view = self._view(context)
            for name in tasks:
                self._seen_task(context, name)
            newest = (name for name in reversed(self._shards) if name != GENERIC)
            seen = islice(filter(view.visibility.sees, newest), interference.REPORTED)
            names = (GENERIC, *(tasks[-interference.REPORTED :] or reversed(list(seen))))
            shards = {name: self._behind_head(name) for name in names}
            return interference.interference(view, shards)

    def interference_of(self, context: RequestContext, task: str) -> TaskInterference:
        with self._reading():
            self._seen_task(context, task)
            return interference.of_task(self._view(context), task)

    def _require_few(self, task: str, name: str) -> None:
        """Raises TooMany for one name more than a task may have."""
        there = self._registry.aliases(task)
        if name not in there and len(there) >= ALIASES:
            raise TooMany(
                f"{task}@{name} would be new, and {task} has {len(there)} aliases; it may have "
                f"{ALIASES}: move one of them instead"
            )

    def _promoted(self, reference: VectorRef) -> None:
        seen = self._registry.seen(reference.run_id)
        vector = VectorVersion(reference.version, reference.digest, seen)
        row = row_of(self._registry.effects(reference.task, reference.version))
        self._execution.apply_events(Promoted(reference.task, vector, row))
