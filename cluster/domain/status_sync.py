"""Puts a cluster's status together from what is new in each answer."""

from __future__ import annotations

from collections.abc import Callable

from cluster.domain.status import ClusterStatus, RunStatus, TaskStatus


class StatusSync:
    """What was received so far. A request with `version` returns what is new since."""

    def __init__(self) -> None:
        self.version = ""
        self._tasks: dict[str, TaskStatus] = {}
        self._work: dict[str, RunStatus] = {}

    def apply(self, told: ClusterStatus) -> ClusterStatus:
        """The whole status as of this answer; the answer itself if there is more to request."""
        if told.whole:
            self._tasks, self._work = {}, {}
        self._tasks |= {one.name: one for one in told.tasks}
        self._work |= {one.run_id: one for one in told.work}
        for name in told.gone:
            self._tasks.pop(name, None)
            self._work.pop(name, None)
        self.version = told.version
        if told.more:
            return told
        tasks = sorted(self._tasks.values(), key=lambda task: task.created)
        work = sorted(self._work.values(), key=lambda run: run.created)
        whole = {"tasks": tuple(tasks), "work": tuple(work), "gone": (), "whole": True}
        return told.model_copy(update=whole)

    def all(self, ask: Callable[[str], ClusterStatus]) -> ClusterStatus:
        """Request, each time with the version, until nothing is left."""
        while (told := self.apply(ask(self.version))).more:
            pass
        return told
