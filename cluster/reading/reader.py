"""The registry read beside the coordinator, in a process that decides nothing and writes nothing.

What answers need beside it is derived from it and kept; the events of the registry say what of that
is new. A look and the answer are of one moment, so whatever the order in which things happen, a
private task that an answer could name is known as one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from cluster.domain.compositions import Fitted
from cluster.reading.asker_view import Known
from cluster.reading.heads import FittedHeads
from cluster.reading.reads import Reads
from cluster.registry import Registry, TaskRecord
from cluster.registry.journal import Happened
from cluster.storage.home import Home

MANY = 5000  # events after which everything is read again


class Reader(Reads):
    """For any number of threads. `note`: who is told of tokens that were used, to write it down.

    Raises BadConfig where there is no registry that this version reads, or none that is reached
    from here."""

    def __init__(self, home: Home, note: Callable[[Sequence[str]], None]) -> None:
        self._blobs, self._told = home.blobs(), note
        self._registry = Registry(home.registry_url, read_only=True)
        self._lock = threading.Lock()  # moments begin in the order of what is known
        self._last, self._known = -1, Known({}, FittedHeads(()))  # as of the last event

    @contextmanager
    def _reading(self) -> Iterator[Known]:
        with self._registry.moment():
            with self._lock:
                known = self._look()
            yield known

    def _note(self, hashes: Sequence[str], now: float) -> None:
        self._told(hashes)

    def close(self) -> None:
        self._registry.close()

    def _look(self) -> Known:
        last, found = self._registry.happened(self._last)
        if self._last < 0 or last < self._last or len(found) > MANY:
            known = self._anew()
        else:
            known = self._after(found)
        self._last, self._known = last, known
        return known

    def _anew(self) -> Known:
        owners = _private(self._registry.tasks(with_removed=True))
        return Known(owners, FittedHeads.of_all(self._registry, owners))

    def _after(self, found: Sequence[Happened]) -> Known:
        known, names = self._known, {one.task for one in found if one.kind == "submitted"}
        if names:  # perhaps that of a task which was cancelled, and was another's
            tasks = self._registry.tasks(with_removed=True, names=[*filter(None, names)])
            kept = {name: owner for name, owner in known.owners.items() if name not in names}
            known = replace(known, owners=kept | _private(tasks))
        for one in found:
            known = replace(known, heads=self._heads(known, one))
        return known

    def _heads(self, known: Known, event: Happened) -> FittedHeads:
        match event:
            case Happened(kind="purged", task=str(task)):
                return known.heads.purged(task)
            case Happened(kind="forgotten", run_id=str(run_id)):
                return known.heads.forgotten({run_id})
            case Happened(kind="fitted", run_id=str(run_id)):
                result = self._registry.result(run_id, Fitted)  # none where it was forgotten since
                return known.heads.added(run_id, result, known.owners) if result else known.heads
        return known.heads


def _private(tasks: Iterable[TaskRecord]) -> dict[str, str]:
    return {task.name: task.submission.owner for task in tasks if task.submission.private}
