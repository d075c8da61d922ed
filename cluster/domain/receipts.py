"""What a request did: kept with its id, and returned again when it is repeated."""

from __future__ import annotations

from cluster.domain.base import Message, Reply
from cluster.domain.status import TaskState


class Submitted(Message):
    """The answer to a submission (the same for the same request id). `skipped`: bad rows that were
    left out; `notes`: what was found out about the data, for people."""

    task: str
    run_id: str
    state: TaskState
    skipped: int = 0
    notes: tuple[str, ...] = ()


class GrownShard(Reply):
    """A task's part of the sample store after it grew by `added` rows."""

    task: str
    version: int
    rows: int
    added: int


class RetriedTask(Reply):
    task: str
    retried: tuple[str, ...]  # run ids


class CancelledTask(Reply):
    """`left`: whether the task left, as it had no vector yet: its samples are no longer in the
    sample store, and its name is free."""

    task: str
    cancelled: tuple[str, ...]  # run ids
    left: bool = False


class RemovedTask(Reply):
    """`users`: those whose models depend on it; `withdrawn`: run ids."""

    task: str
    purged: bool
    users: tuple[str, ...]
    withdrawn: tuple[str, ...]


class QueuedRun(Reply):
    run_id: str


class MovedAlias(Reply):
    task: str
    name: str
    version: int


class CancelledCompositions(Reply):
    user: str
    cancelled: tuple[str, ...]  # run ids


class CollectedGarbage(Reply):
    """Counts of files that nothing refers to, and their bytes; a dry run deletes nothing."""

    blobs: int
    bytes: int
    others: int
