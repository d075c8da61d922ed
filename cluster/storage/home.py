"""The home directory: one installation, with one base. Its layout and its small files."""

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

if TYPE_CHECKING:  # they import pyarrow, which most commands do not need
    from cluster.storage.blobs import Blobs
    from cluster.storage.filesystem import Storage

M = TypeVar("M", bound=Message)

_LOOKED_AT: set[str] = set()  # storages whose settings this process has read
SETTINGS = "settings.json"
ANSWERS = "tacl.toml"  # the answers given to `tacl init`
REGISTRIES = "registries"  # of the cache: copies from before migrations; `tacl gc` deletes them
EMBEDDED = "embedded"  # the base that needs no data of the user
RESTORE = "Restore it from a backup."
FATAL = "error: "  # starts the last line of the log of a head that could not continue


class Settings(Message):
    """What the first `tacl up` decided; written once. Contains no credentials."""

    base: Base
    generic: BlobRef  # the generic shard
    blobs: str  # URI of the blob store when this was written; `Home.store` says where it is
    storage: str | None = None  # URI of blobs, checkpoints, a copy of this; None: the home itself
    registry: str | None = None  # URL; None: SQLite in the home
    precision: Precision = "float32"  # of passes on CPUs, if none is requested


class Running(Message):
    """The cluster that serves a home now; the file exists while it runs."""

    pid: int  # of the head process
    address: str  # of Ray's GCS
    token: str | None  # path of the file with Ray's authentication token; None: Ray's own places
    joined: bool = False  # an existing cluster, of several machines
    insecure: bool = False  # it requires no token
    lost: str | None = None  # why it does not answer; it is being started again


class Serving(Message):
    """How the HTTP API was started (`cluster.serving.starting`); kept until it is stopped, so that
    a cluster that was lost serves again. At most `most` predictors run, each with `cpus` and
    `gpus`; fewer while there are few queries. `memory`: bytes that the predictors of one machine,
    or each one with a GPU of its own, may fill with what they can read again; default:
    `cluster.serving.memory`. `ingresses`: processes that take requests and call the predictors."""

    host: str
    port: int
    most: int
    cpus: float
    open_to_all: bool
    gpus: float
    memory: int | None = None
    ingresses: int = 1


class Below:
    """A path in a home."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, home: Home, _: object) -> Path:
        return home.path / self._name


@dataclass(frozen=True)
class Home:
    """Paths under one directory.

    With `storage`, the directory is only this machine's part of a home whose settings, blobs and
    checkpoints are at that URI.
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
        """A command about this home that works in any directory."""
        return f"tacl {verb} --home {quote(str(self.path))}"

    @property
    def where(self) -> str:
        """The argument with which `at` finds the home on every node of its cluster."""
        settings = self.settings()
        return (settings and settings.storage) or str(self.path)

    @property
    def registry_url(self) -> str:
        settings = self.settings()
        own = f"sqlite:///{self.path / 'registry.sqlite'}"
        return (settings and settings.registry) or own

    @property
    def is_pinned(self) -> bool:
        """Whether the coordinator must run on the home's machine, because the registry is there."""
        return self.registry_url.startswith("sqlite:")

    @property
    def old_registries(self) -> Path:
        """The folder for copies of the registry from before migrations."""
        return self.path / "cache" / REGISTRIES

    def shared(self) -> Storage:
        """The storage that every node of the cluster sees."""
        from cluster.storage.filesystem import Storage

        return Storage(self.where)

    @property
    def checkpoints(self) -> Storage:
        """The storage of checkpoints, one folder per run; see `cluster.storage.checkpoints`."""
        return self.shared().below("checkpoints")

    def settings(self) -> Settings | None:
        """The settings; None before the first `tacl up`. BadConfig if the file is damaged."""
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
        if found != known:  # the first time, or the home was founded again there
            self.path.mkdir(parents=True, exist_ok=True)
            write(self.settings_file, found)
        return found

    def close_to_others(self) -> None:
        """Make the directory, which no other user of the machine can enter: it has samples, vectors
        and tokens of users."""
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

    @property
    def store(self) -> str:
        """A directory or the URI of the blob store; ClusterNotRunning before the first `tacl up`.
        Without a storage it is in the home, which may have been copied or renamed since."""
        settings = self.founded()
        return settings.blobs if settings.storage is not None else str(self.path / "blobs")

    def blobs(self) -> Blobs:
        """The blob store; ClusterNotRunning before the first `tacl up`."""
        store = self.store
        from cluster.storage.blobs import Blobs

        return Blobs(store, cache=self.path / "cache" / "blobs")

    def running(self) -> Running | None:
        """The cluster that serves this home; None if none does, for example if it was killed."""
        return _read(self.running_file, Running, self._begin_anew()) if self._locked() else None

    def serving(self) -> Serving | None:
        """How the HTTP API was started; None if it is not served."""
        return _read(self.serving_file, Serving, self._begin_anew())

    def _begin_anew(self) -> str:
        """What to do about a file that every start of the cluster writes."""
        return f"End the process that serves {self.path}, then start it again: {self.command('up')}"

    @contextmanager
    def lock(self, patience: float = 1.0, held: int | None = None) -> Iterator[int]:
        """Lock the home, as the head does; the lock ends with its process. Raises HomeInUse.

        Yields the lock's descriptor; `held` is that of a lock that this process already has.
        """
        if held is not None:
            yield held
            return
        if not self._locked():
            self.running_file.unlink(missing_ok=True)  # of a head that was killed
        with self.lock_file.open("a") as file:
            until = time.monotonic() + patience  # somebody may just be checking it
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
    """What is chosen when a home is made, and may be repeated later. Paths are absolute. Raises
    BadConfig for a registry whose URL contains a secret."""

    base: str | None = None
    generic: str | None = None
    storage: str | None = None  # URI
    registry: str | None = None  # URL

    def __post_init__(self) -> None:
        if self.registry is not None:
            require_open(self.registry)


def require_founder(home: Home, chosen: Founding) -> None:
    """Check before anything is started: BadConfig if a first start lacks something, HomeInUse if a
    later one would change what the home was made with."""
    settings, base = home.settings(), chosen.base
    if settings is None and base is None:
        raise BadConfig(
            f"{home.path} is a new home and needs a base: {home.command('up')} --base SPEC, where "
            f"SPEC is one of {FORMS}; or answer three questions: {home.command('init')}"
        )
    if settings is None and base != EMBEDDED and chosen.generic is None:
        raise BadConfig(
            f"a new home with the base {base} needs generic samples, unlabelled data that belong "
            "to none of your tasks; every vector is penalised on them: "
            f"{home.command('up')} --base {quote(str(base))} --generic DATA"
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
    """Write them where every node finds them, if they name a storage."""
    if settings.storage is not None:
        text = settings.model_dump_json(indent=2) + "\n"
        from cluster.storage.filesystem import Storage

        Storage(settings.storage).write(SETTINGS, text.encode())


def published(storage: str) -> Settings | None:
    """The settings at a storage, where every node finds them; None if it is new."""
    from cluster.storage.filesystem import Storage

    data = Storage(storage).read(SETTINGS)
    return None if data is None else _parsed(data, Settings, f"{SETTINGS} of {storage}")


def write(path: Path, message: Message) -> None:
    """Write a file, which is whole or unchanged whenever the process dies."""
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
    """Lock an open file, if it is not locked; whether it worked. `kind`: LOCK_EX or LOCK_SH."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
