"""Reads the registry beside the coordinator, in a process that decides nothing and writes nothing.

What answers need beside the registry is derived from it and kept; the events of the registry say
what of that is out of date. An answer and the check for events are of one snapshot. So, in whatever
order things happen, a private task that an answer could name is known to be private.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from cluster.domain.compositions import Fitted
from cluster.reading.asker_view import Known
from cluster.reading.heads import FittedHeads
from cluster.reading.reads import Reads
from cluster.registry import Registry, TaskRecord
from cluster.registry.journal import LoggedEvent
from cluster.storage.home import Home

if TYPE_CHECKING:  # it imports pyarrow, which few requests need
    from cluster.storage.blobs import Blobs

MANY = 5000  # events since the last look; after more, everything is read again


class Reader(Reads):
    """For any number of threads. `note` is called with hashes of tokens that were used, to record
    it.

    Raises BadConfig if there is no registry that this version reads, or if it cannot be reached.
    """

    def __init__(self, home: Home, note: Callable[[Sequence[str]], None]) -> None:
        self._home, self._told = home, note
        self._registry = Registry(home.registry_url, read_only=True)
        self._lock = threading.Lock()  # snapshots start in the order of what is known
        self._last = -1  # the last event that was taken in; as of it are
        self._owners: Mapping[str, str] = {}
        self._heads: FittedHeads | None = None  # None: nobody needed them yet

    @contextmanager
    def _reading(self) -> Iterator[Known]:
        with self._registry.snapshot():
            with self._lock:
                known = self._look()
            yield known

    def _note(self, hashes: Sequence[str], now: float) -> None:
        self._told(hashes)

    @cached_property
    def _blobs(self) -> Blobs:
        return self._home.blobs()

    def close(self) -> None:
        self._registry.close()

    def _look(self) -> Known:
        last, found = self._registry.events_after(self._last)
        owners, heads = self._owners, self._heads
        if self._last < 0 or last < self._last or len(found) > MANY:
            owners, heads = _private(self._registry.tasks(with_removed=True)), None
        else:
            owners = self._owners_after(found)
            heads = heads and self._heads_after(heads, found, owners)
        self._last, self._owners, self._heads = last, owners, heads
        return Known(owners, lambda: heads or self._read_heads(last, owners))

    def _read_heads(self, last: int, owners: Mapping[str, str]) -> FittedHeads:
        """Read heads in the snapshot of a look; kept for the next, unless others looked since."""
        with self._lock:
            if self._last == last:
                self._heads = self._heads or FittedHeads.of_all(self._registry, owners)
                return self._heads
        return FittedHeads.of_all(self._registry, owners)

    def _owners_after(self, found: Sequence[LoggedEvent]) -> Mapping[str, str]:
        names = {one.task for one in found if one.kind == "submitted"}
        if not names:
            return self._owners
        # The name may have been that of a cancelled task of another owner.
        tasks = self._registry.tasks(with_removed=True, names=[*filter(None, names)])
        kept = {name: owner for name, owner in self._owners.items() if name not in names}
        return kept | _private(tasks)

    def _heads_after(
        self, heads: FittedHeads, found: Sequence[LoggedEvent], owners: Mapping[str, str]
    ) -> FittedHeads:
        for event in found:
            match event:
                case LoggedEvent(kind="purged", task=str(task)):
                    heads = heads.without_task(task)
                case LoggedEvent(kind="forgotten", run_id=str(run_id)):
                    heads = heads.without_runs({run_id})
                case LoggedEvent(kind="fitted", run_id=str(run_id)):
                    result = self._registry.result(run_id, Fitted)  # None if it was forgotten
                    heads = heads.with_fit(run_id, result, owners) if result else heads
                case _:
                    pass
        return heads


def _private(tasks: Iterable[TaskRecord]) -> dict[str, str]:
    return {task.name: task.submission.owner for task in tasks if task.submission.private}
