"""Files that nothing refers to: finding them, and deleting them.

What is stored and not yet in the registry belongs to a submission or a run under way, so only what
is older than GRACE is garbage. (In a bucket the age is that of the first upload: a file that is
stored there again after a day may be deleted before it is referred to, which is then reported.)
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from cluster.domain.receipts import CollectedGarbage
from cluster.registry import Registry
from cluster.storage import home as homes
from cluster.storage.blobs import Blobs, Stored
from cluster.storage.drafts import abandoned
from cluster.storage.home import Home

GRACE = 24 * 3600.0  # seconds


def unreferenced(found: Iterable[Stored], needed: Collection[str], now: float) -> list[Stored]:
    """The files that may be deleted, of those found: not needed, and older than GRACE."""
    return [one for one in found if one.digest not in needed and now - one.modified > GRACE]


@dataclass(frozen=True)
class Garbage:
    """`files`: files that can be made again, with their sizes in bytes."""

    blobs: list[Stored]
    files: dict[Path, int]

    def counted(self, runs: int) -> CollectedGarbage:
        """How much it is, with the checkpoints of this number of runs."""
        size = sum(one.size for one in self.blobs) + sum(self.files.values())
        others = runs + len(self.files)
        return CollectedGarbage(blobs=len(self.blobs), bytes=size, others=others)


def scan(home: Home, registry: Registry) -> Garbage:
    """Blobs, half-written blobs and cached files that nothing needs. The file of theta0 stays:
    without it the next process would hold another copy in memory."""
    blobs, settings, now = home.blobs(), home.settings(), time.time()
    needed = {*registry.referenced(), *([settings.generic.digest] if settings else [])}
    files: dict[Path, int] = {}
    theta0 = f"bases/{settings.base.digest}" if settings else ""
    made = {file for cache in _caches(home) for file in _files(cache) if file != cache / theta0}
    for path in {*blobs.partial_files(), *made}:
        with suppress(FileNotFoundError):  # its writer has finished
            if now - (found := path.stat()).st_mtime > GRACE:
                files[path] = found.st_size
    return Garbage(unreferenced(blobs.stored(), needed, now), files)


def delete(home: Home, digests: Collection[str]) -> None:
    """Delete blobs that nothing needed, except those that somebody stored again since."""
    blobs, now = home.blobs(), time.time()
    old = unreferenced(blobs.all_listed(digests), (), now)
    blobs.remove_all([one.digest for one in old])


def remove(home: Home, digests: Collection[str]) -> None:
    """Delete blobs at once, however new, and what this machine's caches hold of them."""
    home.blobs().remove_all(digests)
    for cache in _caches(home):  # learners of a home in a bucket have a cache of their own
        for path in chain(_files(cache / "blobs"), _files(cache / "probes")):
            if not {path.name, *path.name.split("-")}.isdisjoint(digests):
                path.unlink(missing_ok=True)


def stored_again(home: Home, since: Mapping[str, float]) -> set[str]:
    """The files that were stored again since the given time, and may be about to be referred to. In
    a bucket that is not visible: such a file goes, and what refers to it is refused, or retried."""
    found = home.blobs().all_listed(since.keys())
    return {one.digest for one in found if one.modified > since[one.digest]}


def erase(home: Home, digests: Collection[str]) -> None:
    """Delete blobs, and everything that was computed from any blob: it is computed again.
    Registries from before a migration are deleted too."""
    remove(home, digests)
    # Only these: a backup under way keeps its snapshot beside them.
    kinds = ("tangents", "heads", "probes", homes.REGISTRIES)
    for cache in _caches(home):
        for path in chain.from_iterable(_files(cache / kind) for kind in kinds):
            path.unlink(missing_ok=True)


def sweep(home: Home, blobs: Blobs) -> None:
    """Delete what processes left when they were killed while writing: nothing refers to it, and
    whose it is, is not known."""
    places = chain.from_iterable((cache, cache / "blobs") for cache in _caches(home))
    for path in chain(blobs.abandoned(), *map(abandoned, places)):
        with suppress(FileNotFoundError):  # its process still lives, and deleted it itself
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _caches(home: Home) -> set[Path]:
    """The caches on this machine: learners of a home in a bucket have a folder of their own."""
    return {place / "cache" for place in (home.path, Home.at(home.where).path)}


def _files(folder: Path) -> Iterator[Path]:
    """The files below a folder. What disappears meanwhile, as folders that learners write in, is
    left out: `rglob` would raise."""
    found = (Path(place) / name for place, _, names in os.walk(folder) for name in names)
    return (path for path in found if path.is_file())
