"""A connection lost with the answer to a commit; a process that is killed while it erases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
    `landed` or not; until the end nobody can ask whether it did, unless that is `asked_at_once`."""
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
    """As by SIGKILL: nothing of ours catches it."""


@contextmanager
def killed_after_removing(blobs: int) -> Iterator[None]:
    """What the block does ends where it removes a blob more."""
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
