"""What answers need beside the registry, and what one requester sees of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cluster.domain.visibility import Visibility
from cluster.domain.work import is_visible
from cluster.reading.heads import FittedHeads
from cluster.registry import Registry, RunRecord
from tacl.errors import UnknownRun


@dataclass(frozen=True)
class Known:
    """What is derived from the registry and takes long to read there. `owners`: of the private
    tasks, removed ones too. `heads`, of thousands of tasks, is called where they are needed, inside
    the same snapshot: few requests need them."""

    owners: Mapping[str, str]
    heads: Callable[[], FittedHeads]


@dataclass(frozen=True)
class AskerView:
    """What one requester is told."""

    registry: Registry
    known: Known
    visibility: Visibility

    def seen_run(self, run_id: str) -> RunRecord:
        """Raises UnknownRun when there is none that the requester sees."""
        run = self.registry.run(run_id)
        if not is_visible(run.work, self.visibility):
            raise UnknownRun(f"there is no run {run_id}")
        return run
