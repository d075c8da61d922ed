"""A home somewhere else: what its registry says at one moment, and every file that it refers to.

At the target lie `files`, named by digest, of which the registry is one, and `backup.json`, which
is written last: a backup that ends early leaves the one before. Repeated, it copies what is new and
deletes what is needed no more, so that what was purged is erased there too. The home may run. What
it deletes meanwhile, its registry refers to no more: then the moment is taken anew.

What can be made again is left out: checkpoints, caches, logs. So is HOME/data, which is not ours.
"""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from shlex import quote
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import ValidationError

from cluster.domain.base import Message
from cluster.domain.operations import BackedUp, Restored
from cluster.domain.urls import require_open
from cluster.registry import Registry
from cluster.registry.copying import copy, require_empty
from cluster.registry.migrating import migrate
from cluster.runtime import local_socket
from cluster.runtime.restart import head_here
from cluster.storage import home as homes
from cluster.storage.blobs import Blobs
from cluster.storage.drafts import scratch
from cluster.storage.filesystem import Storage, absolute_uri
from cluster.storage.home import Home, Settings
from tacl.errors import (
    BadConfig,
    ClusterNotRunning,
    CorruptBlob,
    DataNotFound,
    HomeInUse,
    StorageUnavailable,
)

MANIFEST = "backup.json"
FILES = "files"
SNAPSHOT = "snapshot.sqlite"

Count = Callable[[int, int], None]  # files done, of how many


class Manifest(Message):
    """What lies at a target. Every other file is found through the registry."""

    form: Literal[1] = 1
    founded: float  # when the home was made, by which it is known
    at: float
    settings: Settings
    registry: str  # digest of an SQLite file


def backup(home: Home, target: str | Path, count: Count) -> BackedUp:
    """Raises BadConfig for a target within the home or its storage, HomeInUse for one that has
    another home, CorruptBlob when the home lacks a file that it needs, StorageUnavailable."""
    home.founded()
    running = home.running() if home.is_pinned else None
    is_far = running is not None and not running.lost and head_here(running) is None
    if is_far and not local_socket.answers(home.path):
        # What SQLite knows of a file that is written lies in memory of the machine that writes it.
        raise HomeInUse(f"the cluster of {home.path} runs on another machine; back it up there")
    uri = absolute_uri(str(target))
    for kept in filter(None, (home.path.as_uri(), home.founded().storage)):
        if _lies_in(uri, kept):
            raise BadConfig(
                f"{target} lies in the home, at {kept}, and would be lost with it; name another"
            )
    place = Storage(uri)
    with _written(place.uri), _alone(home), scratch(home.path / "cache") as folder:
        before = _manifest(place)
        files = Blobs(place.below(FILES).uri, cache=folder)
        copying = _Copying(home, files, folder / SNAPSHOT, count)
        if before is not None and before.founded != copying.founded:
            raise HomeInUse(f"{target} has the backup of another home; use another target")
        copying.run()
        manifest = Manifest(
            founded=copying.founded,
            at=copying.at,
            settings=home.founded(),
            registry=files.put(copying.snapshot),
        )
        place.write(MANIFEST, manifest.model_dump_json(indent=2).encode())
        old = copying.there.keys() - copying.needed - {manifest.registry}
        for digest in old:
            files.remove(digest)
        for half in files.halves():  # of a backup that was killed: perhaps of what was purged since
            half.unlink(missing_ok=True)
    return BackedUp(
        target=place.uri,
        at=copying.at,
        tasks=copying.tasks,
        files=len(copying.needed),
        copied=len(copying.copied),
        bytes=sum(copying.copied.values()),
        deleted=len(old),
    )


def _lies_in(uri: str, place: str) -> bool:
    """On the same server: of all that a URI of S3 may name after `?`, another one alone makes it
    another place."""
    (inner, _, options), (outer, _, others) = uri.partition("?"), place.partition("?")
    is_within = f"{inner}/".startswith(f"{outer.rstrip('/')}/")
    return is_within and _server(options) == _server(others)


def _server(options: str) -> str | None:
    return dict(parse_qsl(options)).get("endpoint_override")


class _Copying:
    """The registry, then its files, until no file has gone in between."""

    def __init__(self, home: Home, files: Blobs, snapshot: Path, count: Count) -> None:
        self._home, self._files, self.snapshot, self._count = home, files, snapshot, count
        self._source = home.blobs()
        self.there = {one.digest: one.size for one in files.stored()}
        self.copied: dict[str, int] = {}
        with closing(Registry(home.registry_url)) as registry:
            founded = registry.founding()
        if founded is None:
            raise ClusterNotRunning(f"{home.path} was never started; there is nothing to keep yet")
        self.founded = founded

    def run(self) -> None:
        lost = set[str]()
        while (gone := self._missing()) is not None:
            digest, error = gone
            if digest in lost:  # the registry still refers to it
                raise error
            lost.add(digest)

    def _missing(self) -> tuple[str, CorruptBlob] | None:
        """One pass; which file could not be copied."""
        self._take_moment()
        found = {one.digest: one.size for one in self._source.stored()}
        for number, digest in enumerate(sorted(self.needed), 1):
            if digest in found and self.there.get(digest) == found[digest]:
                continue
            self._count(number, len(self.needed))
            try:
                self._files.take(digest, self._source)
            except CorruptBlob as error:
                return digest, error
            self.there[digest] = self.copied[digest] = found.get(digest, 0)
        return None

    def _take_moment(self) -> None:
        self.snapshot.unlink(missing_ok=True)
        self.at = time.time()
        with (
            closing(Registry(self._home.registry_url)) as registry,
            closing(Registry(f"sqlite:///{self.snapshot}")) as snapshot,
        ):
            copy(registry, snapshot)
            self.needed = _needed(snapshot, self._home.founded())
            self.tasks = len(snapshot.tasks())


def restore(
    source: str | Path, home: Home, storage: str | None, registry: str | None, count: Count
) -> Restored:
    """Make the home of a backup again, in an empty place; `storage` and `registry` as for a new
    home. Every file is compared with its name.

    Raises BadConfig, DataNotFound, HomeInUse, CorruptBlob, StorageUnavailable; then nothing is left
    at `home`.
    """
    if registry is not None:
        require_open(registry)
    place, manifest = _opened(source)
    if home.path.exists() and any(home.path.iterdir()):
        raise HomeInUse(f"{home.path} is not empty; restore into a new directory")
    if storage is not None and homes.published(storage) is not None:
        raise HomeInUse(f"{storage} is the storage of a home already; name one that is empty")
    changes = {
        "blobs": Storage(storage or home.path).below("blobs").uri,
        "storage": storage and absolute_uri(storage),
        "registry": registry,
    }
    settings = manifest.settings.model_copy(update=changes)
    home.close_to_others()
    try:
        with _written(home.path):
            return _restored(home, settings, manifest, place.below(FILES).uri, count)
    except BaseException:
        shutil.rmtree(home.path, ignore_errors=True)
        raise


def _restored(
    home: Home, settings: Settings, manifest: Manifest, source: str, count: Count
) -> Restored:
    """The settings, by which it is a home, are written last."""
    blobs = Blobs(settings.blobs, cache=home.path / "cache" / "blobs")
    with scratch(home.path / "cache") as folder:
        files, snapshot = Blobs(source, cache=folder), folder / SNAPSHOT
        snapshot.write_bytes(_read(files, manifest.registry))
        migrate(f"sqlite:///{snapshot}", folder)  # it may be of an earlier version
        with (
            closing(Registry(f"sqlite:///{snapshot}")) as kept,
            closing(Registry(settings.registry or home.registry_url)) as registry,
        ):
            require_empty(registry)
            needed, tasks = _needed(kept, settings), len(kept.tasks())
            for number, digest in enumerate(sorted(needed), 1):
                count(number, len(needed))
                blobs.take(digest, files)
            copy(kept, registry)
    homes.publish(settings)
    homes.write(home.settings_file, settings)
    _close(home.path)
    size = sum(one.size for one in blobs.stored() if one.digest in needed)
    return Restored(home=str(home.path), at=manifest.at, tasks=tasks, files=len(needed), bytes=size)


def _read(files: Blobs, digest: str) -> bytes:
    """Of a backup. What a disk does not read is StorageUnavailable, and no fault of the home."""
    try:
        return files.read(digest)
    except OSError as error:
        raise StorageUnavailable(
            f"the backup cannot be read: {error}. Let this process read it, or use another one."
        ) from error


def _opened(source: str | Path) -> tuple[Storage, Manifest]:
    uri = absolute_uri(str(source))
    # Looking into a directory would make it.
    is_there = not uri.startswith("file://") or Path(unquote(urlsplit(uri).path)).is_dir()
    place = Storage(uri) if is_there else None
    manifest = place and _manifest(place)
    if place is None or manifest is None:
        command = f"tacl backup {quote(str(source))}"
        raise DataNotFound(f"there is no backup at {source}; make one: {command}")
    return place, manifest


def _manifest(place: Storage) -> Manifest | None:
    """None where there is no backup yet."""
    text = place.read(MANIFEST)
    try:
        return None if text is None else Manifest.model_validate_json(text)
    except ValidationError as error:
        raise BadConfig(
            f"{MANIFEST} of {place.uri} is of another version of TACL, or damaged: {error}. Use "
            "the version that made it, or another backup."
        ) from error


def _needed(registry: Registry, settings: Settings) -> set[str]:
    return {*registry.referenced(), settings.generic.digest}


@contextmanager
def _written(place: object) -> Iterator[None]:
    """What a disk refuses, as one that is full, is StorageUnavailable."""
    try:
        yield
    except OSError as error:
        raise StorageUnavailable(
            f"{error.filename or place} cannot be written: {error.strerror or error}. Free some "
            "space, or let this process write there; then repeat what you asked."
        ) from error


@contextmanager
def _alone(home: Home) -> Iterator[None]:
    """Two at once would delete each other's files."""
    path = home.path / "backup.lock"
    path.touch(mode=0o600)
    with path.open("a") as file:
        if not homes.try_lock(file.fileno(), fcntl.LOCK_EX):
            raise HomeInUse(f"a backup of {home.path} is under way; wait until it has ended")
        yield


def _close(folder: Path) -> None:
    """To other users, whatever this process lets them read else."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
