"""The tasks of a fit, in a blob: thousands of them would be read and written, by whoever decides or
looks at a run, with its row of the registry."""

from __future__ import annotations

from pydantic import TypeAdapter

from cluster.domain.base import BlobRef
from cluster.domain.work import FitTask
from cluster.storage.blobs import Blobs

_TASKS = TypeAdapter(tuple[FitTask, ...])


def store_tasks(blobs: Blobs, tasks: tuple[FitTask, ...]) -> BlobRef:
    return BlobRef(digest=blobs.put(_TASKS.dump_json(tasks)), rows=len(tasks))


def listed_tasks(blobs: Blobs, listed: BlobRef) -> tuple[FitTask, ...]:
    """In the same order. CorruptBlob when the file is missing or damaged."""
    return _TASKS.validate_json(blobs.read(listed.digest))
