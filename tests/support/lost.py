"""A connection to the registry that is lost with the answer to a commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

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
