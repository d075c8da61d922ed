"""Who sees a private task: its owner, and nobody else. Only this file decides it.

A viewer is the requester, or the owner of a task whose training or refresh is about to read
samples: only trainings and refreshes of its owner's tasks use a private task. None is the cluster
itself or an admin, who see all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Visibility:
    """What one viewer sees. `owners`: of private tasks, by task."""

    viewer: str | None = None
    owners: Mapping[str, str] = field(default_factory=dict[str, str])

    def sees(self, task: str) -> bool:
        return self.viewer is None or self.owners.get(task, self.viewer) == self.viewer

    def sees_all(self, tasks: Iterable[str]) -> bool:
        return all(self.sees(task) for task in tasks)

    def foreign(self, tasks: Iterable[str], user: str) -> dict[str, str]:
        """The tasks among these that are private to another than the user, with their owners."""
        owned = {task: self.owners[task] for task in tasks if task in self.owners}
        return {task: owner for task, owner in owned.items() if owner != user}


ALL = Visibility()
