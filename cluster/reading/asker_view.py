"""What answers need beside the registry, and what one asker sees of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cluster.domain.visibility import Visibility
from cluster.domain.work import is_seen
from cluster.reading.heads import FittedHeads
from cluster.registry import Registry, RunRecord
from tacl.errors import UnknownRun


@dataclass(frozen=True)
class Known:
    """All of it is in the registry, and takes long to read there. `owners`: of the private tasks,
    removed ones too. `heads` are of thousands of tasks, and few questions need them: of the same
    moment, and to be asked for inside it."""

    owners: Mapping[str, str]
    heads: Callable[[], FittedHeads]


@dataclass(frozen=True)
class AskerView:
    """What one asker is told."""

    registry: Registry
    known: Known
    visibility: Visibility

    def seen_run(self, run_id: str) -> RunRecord:
        """Raises UnknownRun when there is none that the asker sees."""
        run = self.registry.run(run_id)
        if not is_seen(run.work, self.visibility):
            raise UnknownRun(f"there is no run {run_id}")
        return run
