"""Which attempt each learner does, stored for later coordinators.

A learner is named by the first attempt that it does, as the name of an actor cannot change. Later
attempts are recorded where the names are: in Ray's control service, which lives as long as the
learners do.
"""

from __future__ import annotations

import json

from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

from cluster.runtime.connection import NAMESPACE
from cluster.scheduler.adoption import Attempt

KEY = "learners"


class Assigned:
    """What each learner does that did another attempt first. Only the coordinator writes it."""

    def __init__(self) -> None:
        kept = json.loads(_internal_kv_get(KEY, namespace=NAMESPACE) or "{}")
        self._found = {name: (Attempt(*attempt), runs) for name, (attempt, runs) in kept.items()}

    def attempt(self, learner: str) -> Attempt | None:
        """The attempt of this learner; None if it is the one that names it."""
        found = self._found.get(learner)
        return found and found[0]

    def runs(self, learner: str) -> int:
        """How many attempts it was given."""
        return self._found[learner][1] if learner in self._found else 1

    def learner(self, attempt: Attempt) -> str | None:
        """The learner that does this attempt and is named by another one."""
        return next((name for name, (does, _) in self._found.items() if does == attempt), None)

    def give(self, learner: str, attempt: Attempt) -> None:
        """Record that the learner does this attempt; called before the learner is."""
        self._write(self._found | {learner: (attempt, self.runs(learner) + 1)})

    def forget(self, learner: str) -> None:
        """Remove a learner that has ended."""
        if learner in self._found:
            self._write({name: one for name, one in self._found.items() if name != learner})

    def _write(self, found: dict[str, tuple[Attempt, int]]) -> None:
        _internal_kv_put(KEY, json.dumps(found), namespace=NAMESPACE)
        self._found = found
