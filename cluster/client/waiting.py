"""What a client waits for in the status of a cluster, and what failed there."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from cluster.domain.names import no_such
from cluster.domain.status import ClusterStatus, TaskState
from tacl.errors import ClusterNotRunning, RunFailed, StorageUnavailable, UnknownTask

RESTARTING = 90.0  # seconds in which a cluster that was lost starts itself again
PAUSE = 1.0  # seconds between two tries
LOG = logging.getLogger(__name__)
R = TypeVar("R")


def through_restarts(ask: Callable[[], R], until: float = math.inf) -> Callable[[], R]:
    """`ask`, for a loop that waits. Once it was answered, it is repeated for RESTARTING seconds,
    and not after `until` (of `time.monotonic`), while no cluster answers or its storage fails: a
    lost cluster starts itself again. A warning says so each time; then the error is raised."""
    answered = False

    def asked() -> R:
        nonlocal answered
        last: float | None = None  # when to give up; None while nothing failed
        while True:
            try:
                found = ask()
            except (ClusterNotRunning, StorageUnavailable) as error:
                now = time.monotonic()
                if answered and last is None:
                    LOG.warning("%s; asking again for up to %g s", error, RESTARTING)
                    last = min(now + RESTARTING, until)
                if last is None or now >= last:
                    raise
            else:
                answered = True
                return found
            time.sleep(PAUSE)

    return asked


def pending(status: ClusterStatus, names: Sequence[str] = ()) -> list[str]:
    """Names of these tasks that are not trained yet; without names, all owed tasks and runs. Raises
    UnknownTask."""
    there = [task.name for task in status.tasks]
    if unknown := [name for name in names if name not in there]:
        raise UnknownTask(no_such("task", unknown[0], there))
    if names:
        return [name for name in owed(status) if name in names]
    return owed(status) + [run.run_id for run in status.work if run.is_owed]


def owed(status: ClusterStatus) -> list[str]:
    """Tasks whose training is still to be done."""
    return [task.name for task in status.tasks if task.is_owed]


def failed(status: ClusterStatus) -> set[str]:
    """Tasks whose training failed."""
    return {task.name for task in status.tasks if task.state == TaskState.FAILED}


def require_success(status: ClusterStatus, names: Sequence[str], before: Collection[str]) -> None:
    """Raises RunFailed if one of these tasks failed or was cancelled; without names, if one failed
    that had not failed `before`."""
    wrong = (TaskState.FAILED, TaskState.CANCELLED) if names else (TaskState.FAILED,)
    asked = names or {task.name for task in status.tasks} - {*before}
    if failed := [task for task in status.tasks if task.state in wrong and task.name in asked]:
        reasons = "; ".join(f"{task.name}: {task.reason}" for task in failed)
        raise RunFailed(f"{reasons}. See `tacl logs {failed[0].name}`, then `tacl retry` it.")
