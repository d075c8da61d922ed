"""Files that nothing refers to: which they are, and deleting them.

What is stored and not yet in the registry belongs to a submission or a run that is under way, so
only what is older than GRACE is garbage. (In a bucket the age is that of the first upload: there a
file that is stored again after a day may go before it is referred to, which is then said.)
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
from cluster.storage.drafts import left
from cluster.storage.home import Home

GRACE = 24 * 3600.0  # seconds


def unreferenced(found: Iterable[Stored], needed: Collection[str], now: float) -> list[Stored]:
    """Of the files that were found, those that may go."""
    return [one for one in found if one.digest not in needed and now - one.modified > GRACE]


@dataclass(frozen=True)
class Garbage:
    """`files`, with their bytes: what can be made again."""

    blobs: list[Stored]
    files: dict[Path, int]

    def counted(self, runs: int) -> CollectedGarbage:
        """With the checkpoints of so many runs."""
        size = sum(one.size for one in self.blobs) + sum(self.files.values())
        others = runs + len(self.files)
        return CollectedGarbage(blobs=len(self.blobs), bytes=size, others=others)


def look(home: Home, registry: Registry) -> Garbage:
    """Blobs and kept tangents that nothing needs. The file of theta0 stays: without it the next
    process would have it once more in memory."""
    blobs, settings, now = home.blobs(), home.settings(), time.time()
    needed = {*registry.referenced(), *([settings.generic.digest] if settings else [])}
    files: dict[Path, int] = {}
    theta0 = f"bases/{settings.base.digest}" if settings else ""
    made = {file for cache in _caches(home) for file in _files(cache) if file != cache / theta0}
    for path in {*blobs.halves(), *made}:
        with suppress(FileNotFoundError):  # whoever wrote it has done
            if now - (found := path.stat()).st_mtime > GRACE:
                files[path] = found.st_size
    return Garbage(unreferenced(blobs.stored(), needed, now), files)


def delete(home: Home, digests: Collection[str]) -> None:
    """Blobs that nothing needed, but for those that somebody stored again since."""
    blobs, now = home.blobs(), time.time()
    for digest in digests:
        if unreferenced(blobs.listed(digest), (), now):
            blobs.remove(digest)


def remove(home: Home, digests: Collection[str]) -> None:
    """Delete blobs at once, however new."""
    blobs = home.blobs()
    for digest in digests:
        blobs.remove(digest)


def stored_again(home: Home, since: Mapping[str, float]) -> set[str]:
    """Of these files those that somebody stored since then, and will tell of perhaps. In a bucket
    nobody sees that: such a file goes, and whoever tells of it is refused, or tries again."""
    blobs = home.blobs()
    return {
        digest
        for digest, moment in since.items()
        if any(one.modified > moment for one in blobs.listed(digest))
    }


def erase(home: Home, digests: Collection[str]) -> None:
    """Delete blobs, and everything that was computed from any: it is computed again. So are
    registries of before a migration."""
    remove(home, digests)
    # A backup under way has its snapshot beside them.
    kinds = ("tangents", "heads", "probes", homes.REGISTRIES)
    for cache in _caches(home):
        for path in chain.from_iterable(_files(cache / kind) for kind in kinds):
            path.unlink(missing_ok=True)
        for path in _files(cache / "blobs"):
            if path.name in digests:
                path.unlink(missing_ok=True)


def sweep(home: Home, blobs: Blobs) -> None:
    """Delete what processes left that were killed while they wrote: nothing refers to it, and of
    whom it is nobody knows."""
    places = chain.from_iterable((cache, cache / "blobs") for cache in _caches(home))
    for path in chain(blobs.left(), *map(left, places)):
        with suppress(FileNotFoundError):  # its process, which lives, deletes it itself
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _caches(home: Home) -> set[Path]:
    """Of this machine: learners of a home in a bucket have a place of their own."""
    return {place / "cache" for place in (home.path, Home.at(home.where).path)}


def _files(folder: Path) -> Iterator[Path]:
    """What goes meanwhile, as folders in which learners write, is left out: `rglob` would raise."""
    found = (Path(place) / name for place, _, names in os.walk(folder) for name in names)
    return (path for path in found if path.is_file())
