"""Is this machine, and this home, able to work? Checks that say what to do when it is not."""

from __future__ import annotations

import importlib.metadata as metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from packaging.requirements import Requirement

from cluster.domain.base import Message
from cluster.domain.status import Resources
from cluster.runtime.inspection import References, damage
from cluster.storage.home import Home
from tacl.errors import TaclError

GIB = 1 << 30
MEMORY = 3 * GIB  # the cluster without dashboard takes about one, a training process about one
DISK = 2 * GIB


class Check(Message):
    """What was looked at, what was found, and what to do when it is not well."""

    check: str
    ok: bool
    found: str
    advice: str = ""


def checks(
    home: Home,
    ask: Callable[[], Resources] | None = None,
    references: Callable[[], References] | None = None,
) -> Iterator[Check]:
    """Yields each check as it is done; `ask` gives the cluster's resources, where one runs, and
    `references` what its registry needs of the blob store."""
    yield _python()
    yield _packages()
    yield _libraries()
    yield _processors()
    yield _memory()
    yield _disk(home)
    yield _home(home)
    yield from _storage(home, references)
    yield _cluster(home, ask)


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    return Check(
        check="Python",
        ok=sys.version_info >= (3, 11),
        found=found,
        advice="TACL needs Python 3.11 or newer",
    )


def _packages() -> Check:
    """Every dependency is there in a version of the range that pyproject.toml names."""
    needed = [Requirement(text) for text in metadata.requires("tacl-compose") or ()]
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
    return Check(
        check="packages",
        ok=not wrong,
        found=", ".join(wrong)
        or f"torch {metadata.version('torch')}, ray {metadata.version('ray')}",
        advice="install again: pip install -e . -c constraints.txt",
    )


def _libraries() -> Check:
    """torch and torchvision were built for each other: their operators load."""
    code = "import torch, torchvision; torchvision.ops.nms; print(torch.cuda.device_count())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = (done.stderr.strip().splitlines() or [""])[-1]
    return Check(
        check="torch",
        ok=done.returncode == 0,
        found=f"loads; {done.stdout.strip()} GPUs" if done.returncode == 0 else last,
        advice="install torch and torchvision of one release: constraints.txt names a pair",
    )


def _processors() -> Check:
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Check(check="CPUs", ok=bool(found), found=str(found))


def _memory() -> Check:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if (info := Path("/proc/meminfo")).exists():  # what could be had, caches given up
        words = next(line for line in info.read_text().splitlines() if "MemAvailable" in line)
        free = int(words.split()[1]) * 1024
    return Check(
        check="memory",
        ok=free >= MEMORY,
        found=f"{free / GIB:.1f} GiB free",
        advice=f"{MEMORY / GIB:.0f} GiB are needed for one training at a time",
    )


def _disk(home: Home) -> Check:
    place = next(p for p in [home.path, *home.path.parents] if p.exists())
    free = shutil.disk_usage(place).free
    return Check(
        check="disk",
        ok=free >= DISK,
        found=f"{free / GIB:.1f} GiB free at {place}",
        advice=f"{DISK / GIB:.0f} GiB are needed; use another --home",
    )


def _home(home: Home) -> Check:
    name = "home"
    try:
        settings = home.settings()
        if settings is None:
            return Check(check=name, ok=True, found=f"{home.path}: new, `tacl up` makes it")
        missing = not home.blobs().exists(settings.generic.digest)
    except TaclError as error:
        return Check(check=name, ok=False, found=str(error), advice="restore it from a backup")
    return Check(
        check=name,
        ok=not missing,
        found=f"{home.path}: base {settings.base.spec}"
        + (f"; the generic samples are not in {settings.blobs}" if missing else ""),
        advice="restore the blobs from a backup",
    )


def _storage(home: Home, references: Callable[[], References] | None) -> Iterator[Check]:
    """One check for each thing that is wrong."""
    name = "storage"
    try:
        found = list(damage(home, references))
    except TaclError as error:
        found = [str(error)]
    advice = "make room, or restore it from a backup; then `tacl retry` what has failed"
    for wrong in found:
        yield Check(check=name, ok=False, found=wrong, advice=advice)
    if not found:
        yield Check(check=name, ok=True, found="every file is whole, and more can be written")


def _cluster(home: Home, ask: Callable[[], Resources] | None) -> Check:
    name = "cluster"
    if ask is None and home.running() is None:
        return Check(check=name, ok=True, found="not running; `tacl up` starts it")
    try:
        room = ask() if ask is not None else None
    except TaclError as error:
        advice = f"see {home.logs}, then `tacl down` and `tacl up`"
        return Check(check=name, ok=False, found=str(error), advice=advice)
    if room is None:
        return Check(check=name, ok=True, found="running")
    free = f"{room.free_cpus} of {room.cpus} CPUs and {room.free_gpus} of {room.gpus} GPUs free"
    return Check(check=name, ok=True, found=f"running: {free}")
