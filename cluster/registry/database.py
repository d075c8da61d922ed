"""One database: opened, checked, read and written in transactions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import sqlalchemy as sa

from cluster import steps
from cluster.registry.engines import engine_of, shown
from cluster.registry.schema import META, METADATA, SCHEMA
from tacl.errors import BadConfig


class Database:
    """What every part of the registry builds on. `url` as SQLAlchemy reads it."""

    def __init__(self, url: str) -> None:
        self._engine = engine_of(url)
        try:
            self._open(shown(url))
        except sa.exc.OperationalError as error:
            reason = " ".join(str(error.orig).split())
            raise BadConfig(
                f"the registry {shown(url)} cannot be reached: {reason}. Start its server, or name "
                "another registry."
            ) from error

    def _open(self, name: str) -> None:
        """Makes the tables the first time. BadConfig for those of another version."""
        with self._write() as db:
            METADATA.create_all(db)
            found = db.scalar(sa.select(META.c.value).where(META.c.name == "schema"))
            if found is None:
                db.execute(META.insert().values(name="schema", value=SCHEMA))
            elif found != SCHEMA:
                raise BadConfig(
                    f"the registry {name} has schema {found}; this version of TACL reads schema "
                    f"{SCHEMA}. Use the version of TACL that wrote it."
                )

    def close(self) -> None:
        self._engine.dispose()

    def _write(self, write: str = "durable") -> AbstractContextManager[sa.Connection]:
        """A transaction; its steps are named after the method that writes."""
        return self._written(sys._getframe(1).f_code.co_name, write)

    @contextmanager
    def _written(self, name: str, write: str) -> Iterator[sa.Connection]:
        with self._engine.execution_options(write=write).begin() as db:
            yield db
            steps.reached(f"registry {name} written")
        steps.reached(f"registry {name} committed")

    def _read(self) -> AbstractContextManager[sa.Connection]:
        return self._engine.connect()


def exists(db: sa.Connection, condition: sa.ColumnElement[bool]) -> bool:
    return bool(db.scalar(sa.select(sa.exists().where(condition))))
