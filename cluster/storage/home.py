"""The home directory: one installation, with one base. What lies where, and two small files."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from cluster.domain.base import Base, BlobRef, Message
from cluster.domain.urls import require_open, shown
from cluster.storage.drafts import atomic_write
from tacl.errors import BadConfig, ClusterNotRunning, HomeInUse, StorageUnavailable
from tacl.spec import FORMS
from tacl.training.config import Precision

if TYPE_CHECKING:  # they bring pyarrow, which most commands do not need
    from cluster.storage.blobs import Blobs
    from cluster.storage.filesystem import Storage

M = TypeVar("M", bound=Message)

_LOOKED_AT: set[str] = set()  # storages whose settings this process has read
SETTINGS = "settings.json"
ANSWERS = "tacl.toml"  # what `tacl init` was told
REGISTRIES = "registries"  # of the cache: as they were before a migration; `tacl gc` deletes them
EMBEDDED = "embedded"  # the base that needs no data of anybody's
RESTORE = "Restore it from a backup."
FATAL = "error: "  # begins the last line of the log of a head that could not go on


class Settings(Message):
    """What `tacl up` decided the first time; written once. No credentials."""

    base: Base
    generic: BlobRef  # the reference shard
    blobs: str  # URI of the blob store
    storage: str | None = None  # URI of blobs, checkpoints, a copy of this; None: the home itself
    registry: str | None = None  # URL; None: SQLite in the home
    precision: Precision = "float32"  # of passes on CPUs, where none is asked for


class Running(Message):
    """The cluster that serves a home now; there while it runs."""

    pid: int  # of the head process
    address: str  # of Ray's GCS
    token: str | None  # path of the file with Ray's authentication token; None: Ray's own places
    joined: bool = False  # a cluster that was there before, of several machines
    insecure: bool = False  # it asks nobody for a token
    lost: str | None = None  # why it does not answer; it is being started again


class Serving(Message):
    """How the HTTP API was started (`cluster.serving.starting`); there until it is stopped, so
    that a cluster that was lost serves again. `most` predictors, each with `cpus` and `gpus`; fewer
    while little is asked. `memory`: bytes that those of one machine may fill together with what
    they can read again, of one with a GPU of its own each; default: `cluster.serving.memory`.
    `ingresses`: processes that take requests and ask the predictors."""

    host: str
    port: int
    most: int
    cpus: float
    open_to_all: bool
    gpus: float
    memory: int | None = None
    ingresses: int = 1


class Below:
    """A place in a home."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, home: Home, _: object) -> Path:
        return home.path / self._name


@dataclass(frozen=True)
class Home:
    """Paths under one directory.

    With `storage`, the directory is only this machine's own part of a home whose settings, blobs
    and checkpoints lie at that URI.
    """

    path: Path
    storage: str | None = None

    settings_file = Below(SETTINGS)
    running_file = Below("cluster.json")
    serving_file = Below("serving.json")
    token_file = Below("token")
    lock_file = Below("lock")
    logs = Below("logs")

    @staticmethod
    def at(where: str | Path) -> Home:
        """The home that `where` names, on any node: a directory, or the URI of its storage."""
        text = str(where)
        if "://" not in text:
            return Home(Path(text))
        caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        return Home(caches / "tacl" / hashlib.sha256(text.encode()).hexdigest()[:16], text)

    def command(self, verb: str) -> str:
        """To be typed anywhere, about this home."""
        return f"tacl {verb} --home {quote(str(self.path))}"

    @property
    def where(self) -> str:
        """What `at` finds it by on every node of its cluster."""
        settings = self.settings()
        return (settings and settings.storage) or str(self.path)

    @property
    def registry_url(self) -> str:
        settings = self.settings()
        own = f"sqlite:///{self.path / 'registry.sqlite'}"
        return (settings and settings.registry) or own

    @property
    def is_pinned(self) -> bool:
        """Whether the coordinator must run on the machine of the home: its registry lies there."""
        return self.registry_url.startswith("sqlite:")

    @property
    def old_registries(self) -> Path:
        """For a registry as it was before a migration."""
        return self.path / "cache" / REGISTRIES

    def shared(self) -> Storage:
        """Where every node of the cluster finds what is kept."""
        from cluster.storage.filesystem import Storage

        return Storage(self.where)

    @property
    def checkpoints(self) -> Storage:
        """One folder per run; see `cluster.storage.checkpoints`."""
        return self.shared().below("checkpoints")

    def settings(self) -> Settings | None:
        """None before the first `tacl up`; BadConfig when the file is damaged."""
        known = _read(self.settings_file, Settings)
        if self.storage is None or (known is not None and self.storage in _LOOKED_AT):
            return known
        try:
            found = published(self.storage)
        except StorageUnavailable:
            if known is None:
                raise
            return known
        if found is None:
            return known
        _LOOKED_AT.add(self.storage)
        if found != known:  # the first time, or founded anew at the same place
            self.path.mkdir(parents=True, exist_ok=True)
            write(self.settings_file, found)
        return found

    def close_to_others(self) -> None:
        """Make the directory, which no other user of the machine can enter: samples, vectors and
        tokens of its users lie there."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o700)

    def founded(self) -> Settings:
        """The settings; ClusterNotRunning before the first `tacl up`."""
        settings = self.settings()
        if settings is None:
            chosen = "" if (self.path / ANSWERS).exists() else " --base SPEC"
            raise ClusterNotRunning(
                f"{self.path} is no home of TACL yet; make it one: {self.command('up')}{chosen}, "
                "or name another with --home"
            )
        return settings

    def blobs(self) -> Blobs:
        """The store that the settings name; ClusterNotRunning before the first `tacl up`."""
        settings = self.founded()
        from cluster.storage.blobs import Blobs

        return Blobs(settings.blobs, cache=self.path / "cache" / "blobs")

    def running(self) -> Running | None:
        """None when no cluster serves this home, a killed one included."""
        return _read(self.running_file, Running, self._begin_anew()) if self._locked() else None

    def serving(self) -> Serving | None:
        """None when nothing is served."""
        return _read(self.serving_file, Serving, self._begin_anew())

    def _begin_anew(self) -> str:
        """What to do about a file that every start of the cluster makes anew."""
        return f"End the process that serves {self.path}, then start it again: {self.command('up')}"

    @contextmanager
    def lock(self, patience: float = 1.0, held: int | None = None) -> Iterator[int]:
        """Held by the head for its life; gone with its process, however that ends. HomeInUse.

        Its descriptor; `held` is that of a lock which this process has already.
        """
        if held is not None:
            yield held
            return
        if not self._locked():
            self.running_file.unlink(missing_ok=True)  # of a head that was killed
        with self.lock_file.open("a") as file:
            until = time.monotonic() + patience  # somebody may just be looking
            while not try_lock(file.fileno(), fcntl.LOCK_EX):
                if time.monotonic() > until:
                    raise HomeInUse(
                        f"{self.path} is served by another cluster (process "
                        f"{running.pid if (running := self.running()) else 'starting'}). "
                        f"Stop it, {self.command('down')}, or use another --home."
                    )
                time.sleep(0.02)
            yield file.fileno()

    def _locked(self) -> bool:
        try:
            with self.lock_file.open() as file:
                return not try_lock(file.fileno(), fcntl.LOCK_SH)
        except FileNotFoundError:
            return False


@dataclass(frozen=True)
class Founding:
    """What is chosen when a home is made, and may be said again later. Paths are absolute. Raises
    BadConfig for a registry whose URL holds a secret."""

    base: str | None = None
    generic: str | None = None
    storage: str | None = None  # URI
    registry: str | None = None  # URL

    def __post_init__(self) -> None:
        if self.registry is not None:
            require_open(self.registry)


def require_founder(home: Home, chosen: Founding) -> None:
    """Before anything is started: what a first start needs, or what a later one may not change."""
    settings, base = home.settings(), chosen.base
    if settings is None and base is None:
        raise BadConfig(
            f"{home.path} is a new home and needs a base: {home.command('up')} --base SPEC, where "
            f"SPEC is one of {FORMS}; or answer three questions: {home.command('init')}"
        )
    if settings is None and base != EMBEDDED and chosen.generic is None:
        raise BadConfig(
            f"a new home with the base {base} needs a generic data set, the reference that every "
            f"task is trained against: {home.command('up')} --base {quote(str(base))} "
            "--generic DATA"
        )
    if settings is not None:
        has = {"base": settings.base.spec, **settings.model_dump(include={"storage", "registry"})}
        for what, found in has.items():
            asked = getattr(chosen, what)
            if what != "base":
                asked, found = (one and shown(one) for one in (asked, found))
            if asked is not None and (not found or asked.rstrip("/") != found.rstrip("/")):
                raise HomeInUse(
                    f"{home.path} has the {what} {found or 'in its own directory'}; {asked} was "
                    "asked for. A home keeps what it was made with for ever: use another --home."
                )


def publish(settings: Settings) -> None:
    """Put them where every node finds them, when they name a storage."""
    if settings.storage is not None:
        text = settings.model_dump_json(indent=2) + "\n"
        from cluster.storage.filesystem import Storage

        Storage(settings.storage).write(SETTINGS, text.encode())


def published(storage: str) -> Settings | None:
    """The settings that lie at a storage for every node to find; None when it is new."""
    from cluster.storage.filesystem import Storage

    data = Storage(storage).read(SETTINGS)
    return None if data is None else _parsed(data, Settings, f"{SETTINGS} of {storage}")


def write(path: Path, message: Message) -> None:
    """The whole file or the old one, whatever dies."""
    with atomic_write(path) as stream:
        stream.write(f"{message.model_dump_json(indent=2)}\n".encode())


def _read(path: Path, kind: type[M], advice: str = RESTORE) -> M | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return _parsed(data, kind, str(path), advice)


def _parsed(data: bytes, kind: type[M], name: str, advice: str = RESTORE) -> M:
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise BadConfig(f"{name} cannot be read: {error}. {advice}") from error


def try_lock(descriptor: int, kind: int) -> bool:
    """Whether this open file has the lock now: fcntl.LOCK_EX or LOCK_SH."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
