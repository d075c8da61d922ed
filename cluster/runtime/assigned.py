"""What each learner does, for coordinators that come later.

A learner is named by the first attempt that it does, as the name of an actor stays what it is. What
one does that has done something before is kept where the names are: in Ray's control service, which
lives as long as the learners do.
"""

from __future__ import annotations

import json

from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

from cluster.runtime.connection import NAMESPACE
from cluster.scheduler.adoption import Attempt

KEY = "learners"


class Assigned:
    """Only the coordinator writes it."""

    def __init__(self) -> None:
        kept = json.loads(_internal_kv_get(KEY, namespace=NAMESPACE) or "{}")
        self._found = {name: (Attempt(*attempt), runs) for name, (attempt, runs) in kept.items()}

    def attempt(self, learner: str) -> Attempt | None:
        """What it does; None: what it is named by."""
        found = self._found.get(learner)
        return found and found[0]

    def runs(self, learner: str) -> int:
        """How many it was given."""
        return self._found[learner][1] if learner in self._found else 1

    def learner(self, attempt: Attempt) -> str | None:
        """Who does this, and is named by something else."""
        return next((name for name, (does, _) in self._found.items() if does == attempt), None)

    def give(self, learner: str, attempt: Attempt) -> None:
        """Before the learner hears of it."""
        self._write(self._found | {learner: (attempt, self.runs(learner) + 1)})

    def forget(self, learner: str) -> None:
        """It is ended."""
        if learner in self._found:
            self._write({name: one for name, one in self._found.items() if name != learner})

    def _write(self, found: dict[str, tuple[Attempt, int]]) -> None:
        _internal_kv_put(KEY, json.dumps(found), namespace=NAMESPACE)
        self._found = found
