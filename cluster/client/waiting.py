"""What a client waits for in the status of a cluster, and what failed there."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cluster.domain.names import no_such
from cluster.domain.status import ClusterStatus, TaskState
from tacl.errors import RunFailed, UnknownTask


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
