"""Is what a home keeps still there, whole, and can more be kept? Every file that something needs is
read and compared with its name."""

from __future__ import annotations

import errno
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from cluster.domain.tasks import GENERIC
from cluster.storage.blobs import Blobs
from cluster.storage.home import Home
from tacl.errors import CorruptBlob, TaclError

SQLITE = "sqlite:///"
References = Mapping[str, str]  # digest -> what it is


def damage(home: Home, references: Callable[[], References] | None = None) -> Iterator[str]:
    """What is wrong with the storage of a home, one sentence each; nothing when all is well.

    `references` asks the coordinator that runs; without one the registry is read here.
    """
    settings = home.settings()
    if settings is None:
        return
    yield from _unwritable(home.path)
    yield from _damaged_registry(home)
    try:
        needed = (references or (lambda: _references(home)))()
        blobs = home.blobs()
        yield from _damaged_blobs(blobs, {**needed, settings.generic.digest: f"the {GENERIC} rows"})
        blobs.put(uuid.uuid4().bytes)  # garbage from the beginning
    except TaclError as error:
        yield str(error)


def _damaged_blobs(blobs: Blobs, needed: References) -> Iterator[str]:
    for digest, what in needed.items():
        try:
            blobs.verify(digest)
        except CorruptBlob as error:
            yield f"{what}: {error}"


def _unwritable(folder: Path) -> Iterator[str]:
    """Tried, not asked: a full or read-only disk shows only when something is written."""
    probe = folder / f".probe.{uuid.uuid4().hex}"
    try:
        probe.write_bytes(b"this can be written")
    except OSError as error:
        why = "is full" if error.errno == errno.ENOSPC else f"cannot be written: {error.strerror}"
        yield f"{folder} {why}"
    finally:
        probe.unlink(missing_ok=True)


def _damaged_registry(home: Home) -> Iterator[str]:
    """SQLite checks itself; a server looks after its own."""
    path = Path(home.registry_url.removeprefix(SQLITE))
    if not home.registry_url.startswith(SQLITE) or not path.exists():
        return
    try:
        database = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
        found = [row[0] for row in database.execute("PRAGMA quick_check(5)")]
        database.close()
    except sqlite3.DatabaseError as error:
        found = [str(error)]
    if found != ["ok"]:
        yield f"the registry {path} is damaged: {'; '.join(found)}"


def _references(home: Home) -> References:
    from cluster.registry import Registry

    path = Path(home.registry_url.removeprefix(SQLITE))
    if home.registry_url.startswith(SQLITE) and not path.exists():
        return {}
    registry = Registry(home.registry_url)
    try:
        return {digest: one.what for digest, one in registry.referenced().items()}
    finally:
        registry.close()
