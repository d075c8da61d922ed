"""A connection lost with the answer to a commit; processes that are killed while they write or
erase."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from cluster.storage.blobs import Blobs
from tacl.errors import StorageUnavailable
from tests.support.fakes import Scene


@contextmanager
def lost_answer(
    scene: Scene, write: str, landed: bool = True, asked_at_once: bool = False
) -> Iterator[None]:
    """The connection is lost with the answer to the commit of a method of the registry, which
    `landed` or not; within the block nobody can query which, unless `asked_at_once`."""
    registry = scene.coordinator._registry
    real = getattr(registry, write)

    def lost(*arguments: object, **named: object) -> NoReturn:
        if landed:
            real(*arguments, **named)
        if not asked_at_once:
            registry.answer = away  # type: ignore[method-assign]
        raise StorageUnavailable("the connection was lost")

    def away(*_: object) -> NoReturn:
        raise StorageUnavailable("nobody there")

    setattr(registry, write, lost)
    try:
        yield
    finally:
        for name in {write, "answer"} & vars(registry).keys():
            delattr(registry, name)


class Killed(BaseException):
    """Stands for SIGKILL: none of our code catches it."""


@contextmanager
def killed_after_removing(blobs: int) -> Iterator[None]:
    """The block ends, as if killed, when it removes one blob more than `blobs`."""
    real, left = Blobs.remove, [blobs]

    def deadly(blobs: Blobs, digest: str) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        real(blobs, digest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Blobs, "remove", deadly)
        with pytest.raises(Killed):
            yield


def killed_while(write: Callable[[Path], object], place: Path) -> list[Path]:
    """The drafts of a place that are left by another process, which is killed by SIGKILL when it
    flushes a file; they are made to look an hour old."""

    def die(_: int) -> NoReturn:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    before = {*_drafts(place)}
    if (pid := os.fork()) == 0:
        os.fsync = die
        try:
            write(place)
        finally:  # if nothing was flushed: no second process may run the tests
            os._exit(1)
    os.waitpid(pid, 0)
    left = [path for path in _drafts(place) if path not in before]
    assert left
    for path in left:
        make_old(path)
    return left


def make_old(path: Path) -> None:
    hour_ago = time.time() - 3600
    os.utime(path, (hour_ago, hour_ago))


def _drafts(place: Path) -> list[Path]:
    return [path for path in (place / "drafts").rglob("*") if path.is_file()]
