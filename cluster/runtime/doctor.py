"""Checks whether this machine, and this home, can work, with advice where they cannot.

Of a home, every file that is needed is read and its content compared with its name.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata as metadata
import ipaddress
import shutil
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from shlex import quote

import psutil
from packaging.requirements import Requirement

from cluster.domain.base import Message
from cluster.domain.reports import NeededFiles
from cluster.domain.status import Resources
from cluster.domain.tasks import GENERIC
from cluster.runtime import memory, processors
from cluster.runtime.restart import head_here
from cluster.storage.filesystem import Storage
from cluster.storage.home import Home, Running
from tacl.errors import BadConfig, CorruptBlob, StorageUnavailable, TaclError

DISTRIBUTION = "tacl-compose"  # the name of the package for pip
GIB = 1 << 30
MEMORY = 3 * GIB  # the cluster without dashboard takes about one, a training process about one
DISK = 2 * GIB
SQLITE = "sqlite:///"


class Check(Message):
    """What was checked, what was found, and what to do if it is not ok."""

    check: str
    ok: bool
    found: str
    advice: str = ""


def checks(
    home: Home,
    ask: Callable[[], Resources] | None = None,
    references: Callable[[], NeededFiles] | None = None,
) -> Iterator[Check]:
    """Yield each check once it is done, before the next starts. `ask` returns the cluster's
    resources, if one runs, and `references` the files of the blob store that its registry needs."""
    for of_machine in (_python, _packages, _libraries, _processors, _memory):
        yield of_machine()
    for of_home in (_disk, _home, _privacy):
        yield of_home(home)
    if _can_be_read(home):
        schema = _schema(home)
        yield from schema
        if all(check.ok for check in schema):
            yield from _storage(home, references)
    yield _cluster(home, ask)
    if (running := home.running()) is not None:
        yield access(running)
        yield reach(running)


def migrated(home: Home) -> Check:
    """Migrate the registry to the schema of this version. HomeInUse while a cluster serves it."""
    from cluster.registry.migrating import migrate

    home.founded()
    with home.lock():
        done = migrate(home.registry_url, home.old_registries)
    return Check(check="migration", ok=True, found=str(done or "there is nothing to migrate"))


def _python() -> Check:
    found, advice = sys.version.split()[0], "TACL needs Python 3.11 or newer"
    return Check(check="Python", ok=sys.version_info >= (3, 11), found=found, advice=advice)


def _packages() -> Check:
    """Every dependency is installed in a version within the range of pyproject.toml."""
    needed = [Requirement(text) for text in metadata.requires(DISTRIBUTION) or ()]
    wrong = []
    for one in needed:
        if one.marker is not None and not one.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(one.name)
        except metadata.PackageNotFoundError:
            version = "none"
        if version == "none" or not one.specifier.contains(version, prereleases=True):
            wrong.append(f"{one.name} {version} (needs {one.specifier})")
    found = f"torch {metadata.version('torch')}, ray {metadata.version('ray')}"
    advice = "install again: pip install -e . -c constraints.txt"
    return Check(check="packages", ok=not wrong, found=", ".join(wrong) or found, advice=advice)


def _libraries() -> Check:
    """torch and torchvision were built for each other: their operators load. Also measures whether
    passes in bfloat16 are faster here."""
    code = (
        "import torch, torchvision; torchvision.ops.nms; print(torch.cuda.device_count());"
        "from tacl.training.precision import bfloat16_time, faster;"
        "device = 'cuda' if torch.cuda.is_available() else 'cpu';"
        "print(bfloat16_time(device), faster(device))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    ok, last = done.returncode == 0, (done.stderr.strip().splitlines() or [""])[-1]
    found = _speed(*done.stdout.split()) if ok else last
    advice = "install torch and torchvision of one release: constraints.txt names a pair"
    return Check(check="torch", ok=ok, found=found, advice=advice)


def _speed(gpus: str, bfloat16_time: str, faster: str) -> str:
    use = "bfloat16 pays" if faster == "bfloat16" else "stay with float32"
    takes = f"a product in bfloat16 takes {float(bfloat16_time):.2f} times that in float32"
    return f"loads; {gpus} GPUs; {takes}: {use}"


def _processors() -> Check:
    return Check(check="CPUs", ok=True, found=str(processors.cpus()))


def _memory() -> Check:
    free = memory.free()
    advice = f"{MEMORY / GIB:.0f} GiB are needed for one training at a time"
    return Check(check="memory", ok=free >= MEMORY, found=_free(free), advice=advice)


def _disk(home: Home) -> Check:
    place = next(p for p in [home.path, *home.path.parents] if p.exists())
    free = shutil.disk_usage(place).free
    advice = f"{DISK / GIB:.0f} GiB are needed; use another --home"
    return Check(check="disk", ok=free >= DISK, found=f"{_free(free)} at {place}", advice=advice)


def _free(size: int) -> str:
    return f"{size / GIB:.1f} GiB free"


def _home(home: Home) -> Check:
    try:
        settings = home.settings()
        if settings is None:
            return Check(check="home", ok=True, found=f"{home.path}: new, `tacl up` makes it")
        ok = home.blobs().exists(settings.generic.digest)
    except TaclError as error:
        return Check(check="home", ok=False, found=str(error), advice="restore it from a backup")
    lost = "" if ok else f"; the generic samples are not in {home.store}"
    found, advice = f"{home.path}: base {settings.base.spec}", "restore the blobs from a backup"
    return Check(check="home", ok=ok, found=found + lost, advice=advice)


def _privacy(home: Home) -> Check:
    """Whether other users of the machine have no access to samples, vectors and tokens."""
    mode = home.path.stat().st_mode & 0o777 if home.path.is_dir() else 0o700
    advice = f"close it: chmod 700 {quote(str(home.path))}, or {home.command('up')}"
    found = "others are kept out" if not mode & 0o077 else f"others may enter: mode {mode:o}"
    return Check(check="privacy", ok=not mode & 0o077, found=found, advice=advice)


def _can_be_read(home: Home) -> bool:
    """Whether its settings, if any, can be read; else `_home` has reported why not."""
    try:
        home.settings()
    except TaclError:
        return False
    return True


def _schema(home: Home) -> tuple[Check, ...]:
    """The check of the schema; none if the registry does not exist yet, or cannot be read, which
    `_storage` reports."""
    from cluster.registry import Registry
    from cluster.registry.schema import REVISION

    if home.is_pinned and _sqlite(home) is None:
        return ()
    try:
        Registry(home.registry_url, read_only=True).close()
    except BadConfig as error:
        if isinstance(error.__cause__, StorageUnavailable):
            return ()
        return (Check(check="registry", ok=False, found=str(error)),)
    return (Check(check="registry", ok=True, found=f"schema {REVISION}"),)


def _storage(home: Home, references: Callable[[], NeededFiles] | None) -> Iterator[Check]:
    """Yield one check for each thing that is wrong."""
    found = list(damage(home, references))
    advice = "make room, or restore it from a backup; then `tacl retry` what has failed"
    for wrong in found:
        yield Check(check="storage", ok=False, found=wrong, advice=advice)
    if not found:
        yield Check(check="storage", ok=True, found="every file is whole, and more can be written")


def _cluster(home: Home, ask: Callable[[], Resources] | None) -> Check:
    if ask is None:
        running = home.running() is not None
        found = "running" if running else f"not running; start it: {home.command('up')}"
        return Check(check="cluster", ok=True, found=found)
    try:
        room = ask()
    except TaclError as error:
        advice = f"see {home.logs}, then {home.command('down')}, and {home.command('up')}"
        return Check(check="cluster", ok=False, found=str(error), advice=advice)
    free = f"{room.free_cpus} of {room.cpus} CPUs and {room.free_gpus:g} of {room.gpus} GPUs free"
    return Check(check="cluster", ok=True, found=f"running: {free}")


def access(running: Running) -> Check:
    if not running.insecure:
        return Check(check="access", ok=True, found="Ray's processes ask for a token")
    found = f"the Ray cluster at {running.address} asks nobody for a token"
    advice = "start it with RAY_AUTH_MODE=token on every node, then `tacl up` without --insecure"
    return Check(check="access", ok=False, found=found, advice=advice)


def reach(running: Running) -> Check:
    """Whether other machines can reach a process of the home. Those of a cluster that was joined
    must be reachable: of it, only processes that were started here are checked."""
    head = head_here(running)
    if head is None:
        return Check(check="ports", ok=True, found="the cluster runs on another machine")
    open_ports = sorted(_open_ports(head))
    found = ", ".join(open_ports) or "only this machine reaches the processes of the home"
    advice = (
        "other machines reach these; let it be only what is meant: `tacl serve` on an interface of "
        "yours, which asks for a token"
    )
    return Check(check="ports", ok=not open_ports, found=found, advice=advice)


def _open_ports(head: psutil.Process) -> Iterator[str]:
    """Ports on which it and its children listen on more than the loopback interface."""
    for process in (head, *head.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
            for port in process.net_connections("inet"):
                place = ipaddress.ip_address(port.laddr.ip)
                place = getattr(place, "ipv4_mapped", None) or place
                if port.status == psutil.CONN_LISTEN and not place.is_loopback:
                    yield f"{process.name()} on {place} port {port.laddr.port}"


# -- the storage of a home


def damage(home: Home, references: Callable[[], NeededFiles] | None = None) -> Iterator[str]:
    """Yield what is wrong with the storage of a home, one sentence each; nothing if all is well.

    `references` asks the running coordinator; without it the registry is read here.
    """
    settings = home.settings()
    if settings is None:
        return
    yield from unwritable(home.path)
    harmed = list(_damaged_registry(home))
    yield from harmed
    try:
        asked = references or (None if harmed else partial(_references, home))
        needed = asked().files if asked else {}
        blobs = home.blobs()
        for digest, what in {**needed, settings.generic.digest: f"the {GENERIC} rows"}.items():
            try:
                blobs.verify(digest)
            except (CorruptBlob, OSError) as error:  # of a disk, or it belongs to another user
                yield f"{what}: {error}"
        store = Storage(home.store)
        if store.is_local:  # a blob of the caller, perhaps root, would close a folder to others
            yield from unwritable(Path(store.root))
        else:
            blobs.put(uuid.uuid4().bytes)  # garbage at once, as nothing refers to it
    except TaclError as error:
        yield str(error)


def unwritable(folder: Path) -> Iterator[str]:
    """Yield why no file can be written, by trying: only that shows a full or read-only disk."""
    probe = folder / f".probe.{uuid.uuid4().hex}"
    try:
        probe.write_bytes(b"this can be written")
    except OSError as error:
        why = "is full" if error.errno == errno.ENOSPC else f"cannot be written: {error.strerror}"
        yield f"{folder} {why}"
    finally:
        with contextlib.suppress(OSError):  # what could not be written cannot be deleted either
            probe.unlink()


def _sqlite(home: Home) -> Path | None:
    """The registry's file; None if a server keeps the registry, or there is none yet."""
    path = Path(home.registry_url.removeprefix(SQLITE))
    return path if home.is_pinned and path.exists() else None


def _damaged_registry(home: Home) -> Iterator[str]:
    """Yield what SQLite finds wrong with its file; a registry on a server is not checked."""
    path = _sqlite(home)
    if path is None:
        return
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            found = "; ".join(row[0] for row in database.execute("PRAGMA quick_check(5)"))
    except sqlite3.OperationalError as error:  # a full disk: no room for SQLite's other files
        yield f"the registry {path} cannot be read: {error}"
        return
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found != "ok":
        yield f"the registry {path} is damaged: {found}"


def _references(home: Home) -> NeededFiles:
    from cluster.registry import Registry

    if home.is_pinned and _sqlite(home) is None:
        return NeededFiles(files={})
    with contextlib.closing(Registry(home.registry_url, read_only=True)) as registry:
        found = registry.referenced()
    return NeededFiles(files={digest: one.what for digest, one in found.items()})
