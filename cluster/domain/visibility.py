"""Who sees a private task: its owner, and nobody else. The one place that decides it.

A viewer is whoever asks, or the owner of a task whose training or refresh is about to read samples:
a private task enters only the cycles of its owner's tasks. None is the cluster itself; it sees all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Visibility:
    """What one viewer sees. `owners`: of the private tasks, by task."""

    viewer: str | None = None
    owners: Mapping[str, str] = field(default_factory=dict[str, str])

    def sees(self, task: str) -> bool:
        return self.viewer is None or self.owners.get(task, self.viewer) == self.viewer

    def sees_all(self, tasks: Iterable[str]) -> bool:
        return all(self.sees(task) for task in tasks)

    def foreign(self, tasks: Iterable[str], user: str) -> dict[str, str]:
        """Of these tasks those that are private to somebody else than the user, and to whom."""
        owned = {task: self.owners[task] for task in tasks if task in self.owners}
        return {task: owner for task, owner in owned.items() if owner != user}


ALL = Visibility()
