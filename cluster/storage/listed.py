"""The tasks of a fit, stored in a blob: in the run's row of the registry, thousands of them would
be read and written with every decision about the run, and whenever it is shown."""

from __future__ import annotations

from pydantic import TypeAdapter

from cluster.domain.base import BlobRef
from cluster.domain.work import FitTask
from cluster.storage.blobs import Blobs

_TASKS = TypeAdapter(tuple[FitTask, ...])


def store_tasks(blobs: Blobs, tasks: tuple[FitTask, ...]) -> BlobRef:
    return BlobRef(digest=blobs.put(_TASKS.dump_json(tasks)), rows=len(tasks))


def listed_tasks(blobs: Blobs, listed: BlobRef) -> tuple[FitTask, ...]:
    """The tasks, in the same order. CorruptBlob if the file is missing or damaged."""
    return _TASKS.validate_json(blobs.read(listed.digest))
