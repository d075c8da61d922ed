"""The home directory: one installation, with one base. What lies where, and two small files."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from cluster.blobs import Blobs
from cluster.messages import Base, BlobRef, Message
from tacl.errors import BadConfig, ClusterNotRunning, HomeInUse

M = TypeVar("M", bound=Message)

EMBEDDED = "embedded"  # the base that needs no data of anybody's


class Settings(Message):
    """What `tacl up` decided the first time; written once."""

    base: Base
    generic: BlobRef  # the reference shard
    blobs: str  # URI of the blob store


class Running(Message):
    """The cluster that serves a home now; there while it runs."""

    pid: int  # of the head process
    address: str  # of Ray's GCS
    token: str  # path of the file with Ray's authentication token


@dataclass(frozen=True)
class Home:
    """Paths under one directory."""

    path: Path

    @property
    def settings_file(self) -> Path:
        return self.path / "settings.json"

    @property
    def running_file(self) -> Path:
        return self.path / "cluster.json"

    @property
    def token_file(self) -> Path:
        return self.path / "token"

    @property
    def lock_file(self) -> Path:
        return self.path / "lock"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def registry_url(self) -> str:
        return f"sqlite:///{self.path / 'registry.sqlite'}"

    @property
    def checkpoints(self) -> Path:
        """One folder per run."""
        return self.path / "checkpoints"

    def settings(self) -> Settings | None:
        """None before the first `tacl up`; BadConfig when the file is damaged."""
        return _read(self.settings_file, Settings)

    def blobs(self) -> Blobs:
        """The store that the settings name; ClusterNotRunning before the first `tacl up`."""
        settings = self.settings()
        if settings is None:
            raise ClusterNotRunning(f"{self.path} is no home of TACL yet; run `tacl up` first")
        return Blobs(settings.blobs, cache=self.path / "cache")

    def running(self) -> Running | None:
        """None when no cluster serves this home, a killed one included."""
        running = _read(self.running_file, Running)
        return running if running and self._locked() else None

    @contextmanager
    def lock(self, patience: float = 1.0) -> Iterator[None]:
        """Held by the head for its life; gone with its process, however that ends. HomeInUse."""
        if not self._locked():
            self.running_file.unlink(missing_ok=True)  # of a head that was killed
        with self.lock_file.open("a") as file:
            until = time.monotonic() + patience  # somebody may just be looking
            while not _try_lock(file.fileno(), fcntl.LOCK_EX):
                if time.monotonic() > until:
                    raise HomeInUse(
                        f"{self.path} is served by another cluster (process "
                        f"{running.pid if (running := self.running()) else 'starting'}). "
                        "Stop it with `tacl down`, or use another --home."
                    )
                time.sleep(0.02)
            yield

    def _locked(self) -> bool:
        try:
            with self.lock_file.open() as file:
                return not _try_lock(file.fileno(), fcntl.LOCK_SH)
        except FileNotFoundError:
            return False


def require_founder(home: Home, base: str | None, generic: str | None) -> None:
    """Before anything is started: what a first start needs, or what a later one may not change."""
    settings = home.settings()
    if settings is None and base is None:
        raise BadConfig(
            f"{home.path} is a new home and needs a base: tacl up --base SPEC, where SPEC is "
            "embedded, hf:DIRECTORY_OR_ID, open_clip:NAME@WEIGHTS or timm:NAME@FILE?size=N"
        )
    if settings is None and base != EMBEDDED and generic is None:
        raise BadConfig(
            f"a new home with the base {base} needs a generic data set, the reference that every "
            "task is trained against: tacl up --generic DATA"
        )
    if settings is not None and base is not None and base != settings.base.spec:
        raise HomeInUse(
            f"{home.path} has the base {settings.base.spec}; {base} was asked for. A home has one "
            "base for ever: use another --home."
        )


def write(path: Path, message: Message) -> None:
    """The whole file or the old one, whatever dies."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("w") as stream:
        stream.write(message.model_dump_json(indent=2) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    beside.rename(path)


def _read(path: Path, kind: type[M]) -> M | None:
    try:
        return kind.model_validate_json(path.read_text())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise BadConfig(f"{path} cannot be read: {error}. Restore it from a backup.") from error


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
