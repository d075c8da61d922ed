"""One database: opened, checked, read and written in transactions."""

from __future__ import annotations

from contextlib import AbstractContextManager

import sqlalchemy as sa

from cluster.registry.schema import META, METADATA, SCHEMA, make_durable
from tacl.errors import BadConfig


class Database:
    """What every part of the registry builds on. `url` as SQLAlchemy reads it."""

    def __init__(self, url: str) -> None:
        self._engine = sa.create_engine(url)
        if self._engine.dialect.name == "sqlite":
            make_durable(self._engine)
        with self._write() as db:
            METADATA.create_all(db)
            found = db.scalar(sa.select(META.c.value).where(META.c.name == "schema"))
            if found is None:
                db.execute(META.insert().values(name="schema", value=SCHEMA))
            elif found != SCHEMA:
                raise BadConfig(
                    f"the registry {url} has schema {found}; this version of TACL reads schema "
                    f"{SCHEMA}. Use the version of TACL that wrote it."
                )

    def close(self) -> None:
        self._engine.dispose()

    def _write(self, write: str = "durable") -> AbstractContextManager[sa.Connection]:
        return self._engine.execution_options(write=write).begin()

    def _read(self) -> AbstractContextManager[sa.Connection]:
        return self._engine.connect()


def exists(db: sa.Connection, condition: sa.ColumnElement[bool]) -> bool:
    return bool(db.scalar(sa.select(sa.exists().where(condition))))
