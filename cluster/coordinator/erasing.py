"""Files that are owed their erasure: of purged tasks at once; of models that were replaced, of rows
that models were made from, and of cancelled tasks, soon, as what killed processes were writing; and
garbage that is collected. Deleted without the lock.

While it is decided which they are, and from then on, nothing that is accepted can need one of
them, for they are said not to be there. What a death leaves undone is owed by the registry; garbage
is found again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from cluster.coordinator import garbage
from cluster.coordinator.lock import Lock
from cluster.coordinator.retries import Retries
from cluster.registry import Registry
from cluster.storage.blobs import Blobs
from cluster.storage.home import Home

KEY = ("erase what was purged", "")  # no run's
LEFT = ("delete what is needed no more", "")
HALF = ("delete what was not written to its end", "")
GARBAGE = ("delete what nothing refers to", "")
PACE = 60.0  # seconds between looks at what is needed no more: each may take a second
DAY = 24 * 3600.0  # at whose end it is looked again at what is needed still, all at once


class Erasing:
    """`blobs` is what whoever accepts something asks."""

    def __init__(self, home: Home, registry: Registry, blobs: Blobs, lock: Lock) -> None:
        self._home, self._registry, self._blobs, self._lock = home, registry, blobs, lock
        self._retries = Retries()
        self.owed = True  # perhaps: the registry knows
        self._looked = -PACE  # at what is needed no more
        self._garbage = frozenset[str]()
        self._deletes = False

    @property
    def trouble(self) -> str | None:
        """Why it cannot be done now."""
        return self._retries.trouble({KEY[1]})

    def tick(self) -> bool:
        """Without the lock: in a bucket it takes a while. Whether a file may be gone since."""
        self._deletes = False
        if self.owed:
            self.owed = False  # before the registry is read: it may be owed anew meanwhile
            if not self._retries.try_now(KEY, self._erase):
                self.owed = True
        if time.monotonic() - self._looked > PACE:
            self._retries.try_now(LEFT, self._delete_left)
            self._retries.try_now(HALF, partial(garbage.sweep, self._home, self._blobs))
            self._looked = time.monotonic()
        if self._garbage:
            self._retries.try_now(GARBAGE, self._delete)
        return self._deletes

    def collect(self, digests: Iterable[str]) -> None:
        """Under the lock."""
        self._garbage |= frozenset(digests)

    def _delete(self) -> None:
        asked = self._garbage
        with self._unneeded(asked) as gone:
            garbage.delete(self._home, gone)
        with self._lock:
            self._garbage -= asked

    def _delete_left(self) -> None:
        """What is needed still, or again, may be needed no more later."""
        now = time.time()
        owed = self._registry.left(now)
        if not owed:
            return
        with self._unneeded(frozenset(owed)) as gone:
            gone -= garbage.stored_again(self._home, {digest: owed[digest] for digest in gone})
            with self._lock:
                self._registry.spared(owed.keys() - gone, (now // DAY + 1) * DAY)
            garbage.remove(self._home, gone)
            with self._lock:
                self._registry.erased(gone)

    def _erase(self) -> None:
        """What something else needs too is spared, and owed no more, unless that was purged too
        since it was looked at. Heads that saw what was purged are owed as long as the registry has
        their fits, which nothing answers with since the purge: those go last."""
        spoiled, owed = self._registry.spoiled(), frozenset(self._registry.erasures())
        if not owed and not spoiled:
            return
        with self._unneeded(owed.union(*spoiled.values())) as gone:
            with self._lock:
                if not self.owed:
                    self._registry.erased(owed - gone)
            if gone:
                garbage.erase(self._home, gone)
                with self._lock:
                    self._registry.erased(owed & gone)
            for run_id in spoiled:  # one after the other: each is of thousands of tasks
                with self._lock:
                    if not self.owed:
                        self._registry.forget_fits({run_id})

    @contextmanager
    def _unneeded(self, asked: frozenset[str]) -> Iterator[frozenset[str]]:
        """Of these files those that nothing refers to; none of them is there inside the block.

        To read all that is referred to takes a while, in which somebody may come to need one: what
        was accepted before none of them was there, the second reading finds."""
        gone = asked.difference(self._registry.referenced(asked))
        with ExitStack() as meanwhile:
            with self._lock:
                meanwhile.enter_context(self._blobs.without(gone))
            gone = gone.difference(self._registry.referenced(gone))
            meanwhile.enter_context(self._blobs.without(gone))
            self._deletes |= bool(gone)
            yield gone
