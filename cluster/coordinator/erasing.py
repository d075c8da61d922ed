"""Deletes files that must go, without the lock.

Files of purged tasks go at once. Those of replaced models, of rows that models were made from and
of cancelled tasks go soon, as do half-written files of killed processes and collected garbage.

Once it is decided which files go, they are reported as missing, so that nothing that is accepted
can need one. The registry keeps what a crash leaves undone; garbage is found again.
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

KEY = ("erase what was purged", "")  # of no run
LEFT = ("delete what is needed no more", "")
HALF = ("delete what was not written to its end", "")
GARBAGE = ("delete what nothing refers to", "")
PACE = 60.0  # seconds between checks of what is no longer needed: each may take a second
DAY = 24 * 3600.0  # at its end, what is still needed is checked again, all at once


class Erasing:
    """`blobs`: the object that is asked for files before anything is accepted; files that go are
    hidden in it."""

    def __init__(self, home: Home, registry: Registry, blobs: Blobs, lock: Lock) -> None:
        self._home, self._registry, self._blobs, self._lock = home, registry, blobs, lock
        self._retries = Retries()
        self.owed = True  # whether files may be owed; the registry knows which
        self._looked = -PACE  # when files that are no longer needed were last deleted
        self._garbage = frozenset[str]()
        self._deletes = False

    @property
    def trouble(self) -> str | None:
        """Why files cannot be deleted now; None if nothing fails."""
        return self._retries.trouble({KEY[1]})

    def tick(self) -> bool:
        """Delete what is due, without the lock: in a bucket it takes a while. Returns whether a
        file may be gone since."""
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
        """Have garbage deleted by the next tick; called under the lock."""
        self._garbage |= frozenset(digests)

    def _delete(self) -> None:
        asked = self._garbage
        with self._unneeded(asked) as gone:
            garbage.delete(self._home, gone)
        with self._lock:
            self._garbage -= asked

    def _delete_left(self) -> None:
        """Delete what is no longer needed. Files that are needed still, or again, stay for now."""
        now = time.time()
        owed = self._registry.due_files(now)
        if not owed:
            return
        with self._unneeded(frozenset(owed)) as gone:
            gone -= garbage.stored_again(self._home, {digest: owed[digest] for digest in gone})
            with self._lock:
                self._registry.postpone(owed.keys() - gone, (now // DAY + 1) * DAY)
            garbage.remove(self._home, gone)
            with self._lock:
                self._registry.forget_due(gone)

    def _erase(self) -> None:
        """Erase the files of purged tasks. What something else needs too goes once that needs it no
        more, unless something was purged since this was checked. Heads that saw what was purged are
        owed as long as their fits are kept, which nothing answers with: the fits go last."""
        spoiled, owed = self._registry.fits_of_purged(), frozenset(self._registry.erasures())
        if not owed and not spoiled:
            return
        with self._unneeded(owed.union(*spoiled.values())) as gone:
            with self._lock:
                if not self.owed:
                    self._registry.defer_purged(owed - gone)
            if gone:
                garbage.erase(self._home, gone)
                with self._lock:
                    self._registry.forget_due(owed & gone)
            for run_id in spoiled:  # one at a time: each may have thousands of tasks
                with self._lock:
                    if not self.owed:
                        self._registry.forget_fits({run_id})

    @contextmanager
    def _unneeded(self, asked: frozenset[str]) -> Iterator[frozenset[str]]:
        """The files in `asked` that nothing refers to, all reported as missing inside the block.

        Reading all references takes a while, in which somebody may come to need a file: what was
        accepted before the files were reported as missing is found by the second reading.
        """
        gone = asked.difference(self._registry.referenced(asked))
        with ExitStack() as meanwhile:
            with self._lock:
                meanwhile.enter_context(self._blobs.hiding(gone))
            gone = gone.difference(self._registry.referenced(gone))
            meanwhile.enter_context(self._blobs.hiding(gone))
            self._deletes |= bool(gone)
            yield gone
