"""What of a cluster's status is waited for, and what of it went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tacl.errors import RunFailed, UnknownTask

OWED = ("queued", "training", "running")  # of tasks and of other work
Status = dict[str, Any]


def pending(status: Status, names: Sequence[str] = ()) -> list[str]:
    """What is not at its end: of these tasks, or of everything. Raises UnknownTask."""
    tasks = {task["name"]: task for task in status["tasks"]}
    if unknown := [name for name in names if name not in tasks]:
        raise UnknownTask(f"no task {', '.join(unknown)}; there is {', '.join(tasks) or 'none'}")
    chosen = [tasks[name] for name in names] if names else [*tasks.values(), *status["work"]]
    return [one.get("name") or one["run_id"] for one in chosen if one["state"] in OWED]


def require_success(status: Status, names: Sequence[str]) -> None:
    wrong = ("failed", "cancelled") if names else ("failed",)
    failed = [
        task
        for task in status["tasks"]
        if task["state"] in wrong and (not names or task["name"] in names)
    ]
    if failed:
        reasons = "; ".join(f"{task['name']}: {task['reason']}" for task in failed)
        raise RunFailed(f"{reasons}. See `tacl logs {failed[0]['name']}`, then `tacl retry` it.")
