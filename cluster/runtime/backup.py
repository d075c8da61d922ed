"""A copy of a home at another place: its registry at one moment, and every file it refers to.

The target has `files`, named by digest (the registry is one), and `backup.json`, written last: an
interrupted backup leaves the one before. Repeated, it copies what is new and deletes what is no
longer needed, so that purged data is erased there too. The home may run. A file that it deletes
meanwhile is no longer in its registry: then a new snapshot of the registry is taken.

Left out are checkpoints, caches and logs, which can be recomputed, and HOME/data, which is not
ours.
"""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import ValidationError

from cluster.domain.base import Message
from cluster.domain.operations import BackedUp, Restored
from cluster.domain.urls import require_open
from cluster.registry import Registry
from cluster.registry.copying import copy, finish, require_empty
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

Count = Callable[[int, int], None]  # files done, files in all


class Manifest(Message):
    """The manifest of a backup. Every other file of the target is found through the registry."""

    form: Literal[1] = 1
    founded: float  # when the home was made, which identifies it
    at: float
    settings: Settings
    registry: str  # digest of an SQLite file


def backup(home: Home, target: str | Path, count: Count, verify: bool = False) -> BackedUp:
    """Copy a home to `target`. `verify`: also read what the target has, and replace what is damaged
    there. Raises BadConfig if the target is within the home or its storage,
    HomeInUse if it has the backup of another home, or if the home's cluster runs on another
    machine, CorruptBlob if a file that the home needs is missing, StorageUnavailable."""
    home.founded()
    running = home.running() if home.is_pinned else None
    is_far = running is not None and not running.lost and head_here(running) is None
    if is_far and not local_socket.answers(home.path):
        # SQLite keeps part of the state of an open file in memory of the machine that writes it.
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
        copying = _Copying(home, files, folder / SNAPSHOT, count, verify)
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
        for (
            half
        ) in files.partial_files():  # of a backup that was killed: perhaps of data purged since
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
    """Whether `uri` is within `place`. Of the options that an S3 URI may have after `?`, only
    another server makes it another place."""
    (inner, _, options), (outer, _, others) = uri.partition("?"), place.partition("?")
    is_within = f"{inner}/".startswith(f"{outer.rstrip('/')}/")
    return is_within and _server(options) == _server(others)


def _server(options: str) -> str | None:
    return dict(parse_qsl(options)).get("endpoint_override")


class _Copying:
    """Copies the registry, then its files; repeated until no file was deleted in between."""

    def __init__(
        self, home: Home, files: Blobs, snapshot: Path, count: Count, verify: bool
    ) -> None:
        self._home, self._files, self.snapshot, self._count = home, files, snapshot, count
        self._source = home.blobs()
        self.there = {one.digest: one.size for one in files.stored()}
        self._unread = {*self.there} if verify else set[str]()
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
        """Make one pass; returns the file that could not be copied, with its error, or None."""
        self._take_moment()
        found = {one.digest: one.size for one in self._source.stored()}
        for number, digest in enumerate(sorted(self.needed), 1):
            self._count(number, len(self.needed))
            if digest in found and self._has(digest, found[digest]):
                continue
            try:
                self._files.take(digest, self._source)
            except CorruptBlob as error:
                return digest, error
            self.there[digest] = self.copied[digest] = found.get(digest, 0)
            self._unread.discard(digest)
        return None

    def _has(self, digest: str, size: int) -> bool:
        """Whether the target has the file, of this size; once, if asked to verify it, also whether
        its content is that of its name."""
        if self.there.get(digest) == size and digest in self._unread:
            try:
                self._files.verify(digest)
            except (CorruptBlob, OSError):
                return False
            self._unread.discard(digest)
        return self.there.get(digest) == size

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
        if self.snapshot.with_name(f"{SNAPSHOT}-wal").exists():  # closing it raised no error
            raise StorageUnavailable(
                f"the copy of the registry in {self.snapshot.parent} is incomplete: its disk may "
                "be full. Free some space; then repeat what you asked."
            )


def restore(
    source: str | Path, home: Home, storage: str | None, registry: str | None, count: Count
) -> Restored:
    """Restore a home from a backup, into an empty place; `storage` and `registry` are as for a new
    home. The content of every file is compared with its name.

    Raises BadConfig, DataNotFound, HomeInUse, CorruptBlob, StorageUnavailable; nothing is left at
    `home` then, and another try may name the same storage and registry.
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
        if storage is not None:
            with suppress(StorageUnavailable, OSError):
                Storage(storage).remove(homes.SETTINGS)
        raise


def _restored(
    home: Home, settings: Settings, manifest: Manifest, source: str, count: Count
) -> Restored:
    """Restore the files. The settings, which make it a home, are written last; until then another
    try may have the same registry and storage."""
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
            size = blobs.size(needed)
            copy(kept, registry, unfinished=True)
            homes.write(home.settings_file, settings)
            _close(home.path)
            homes.publish(settings)
            finish(registry)
    return Restored(home=str(home.path), at=manifest.at, tasks=tasks, files=len(needed), bytes=size)


def _read(files: Blobs, digest: str) -> bytes:
    """Read a file of a backup. An error of its disk is StorageUnavailable, no fault of the home."""
    try:
        return files.read(digest)
    except OSError as error:
        raise StorageUnavailable(
            f"the backup cannot be read: {error}. Let this process read it, or use another one."
        ) from error


def _opened(source: str | Path) -> tuple[Storage, Manifest]:
    uri = absolute_uri(str(source))
    # Listing a directory would create it.
    is_there = not uri.startswith("file://") or Path(unquote(urlsplit(uri).path)).is_dir()
    place = Storage(uri) if is_there else None
    manifest = place and _manifest(place)
    if place is None or manifest is None:
        command = f"tacl backup {quote(str(source))}"
        raise DataNotFound(f"there is no backup at {source}; make one: {command}")
    return place, manifest


def _manifest(place: Storage) -> Manifest | None:
    """The manifest at the target; None if there is no backup yet."""
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
    """Raise StorageUnavailable for errors of the disk, for example if it is full."""
    try:
        yield
    except OSError as error:
        raise StorageUnavailable(
            f"{error.filename or place} cannot be written: {error.strerror or error}. Free some "
            "space, or let this process write there; then repeat what you asked."
        ) from error


@contextmanager
def _alone(home: Home) -> Iterator[None]:
    """Hold the lock of backups: two at once would delete each other's files."""
    path = home.path / "backup.lock"
    path.touch(mode=0o600)
    with path.open("a") as file:
        if not homes.try_lock(file.fileno(), fcntl.LOCK_EX):
            raise HomeInUse(f"a backup of {home.path} is under way; wait until it has ended")
        yield


def _close(folder: Path) -> None:
    """Close the folder to other users, whatever the umask of this process."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
