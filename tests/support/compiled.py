"""A cache that compiles SQL statements once per process, as tests open hundreds of registries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Statements(dict[Any, Any]):
    """Compiled statements by the dialect's name, where SQLAlchemy's key is the engine's own."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(_named(key), default)

    def __setitem__(self, key: Any, compiled: Any) -> None:
        super().__setitem__(_named(key), compiled)


def _named(key: Any) -> Any:
    dialect, *statement = key
    return (dialect.name, *statement)


@contextmanager
def once() -> Iterator[None]:
    from cluster.registry import database, dialects

    statements = Statements()

    def engine_of(url: str, *options: Any) -> Any:
        engine = dialects.engine_of(url, *options)
        engine.update_execution_options(compiled_cache=statements)
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "engine_of", engine_of)
        yield
