"""One database: opened, checked, read and written in transactions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError, OperationalError

from cluster import failpoints
from cluster.registry.dialects import engine_of, hold, shown
from cluster.registry.schema import META, METADATA, SCHEMA
from tacl.errors import BadConfig, HomeInUse, StorageUnavailable


class Database:
    """What every part of the registry builds on. `url` as SQLAlchemy reads it."""

    def __init__(self, url: str) -> None:
        self._engine = engine_of(url)
        self._held: sa.Connection | None = None
        try:
            self._open(shown(url))
        except StorageUnavailable as error:
            raise BadConfig(
                f"the registry {shown(url)} cannot be reached: {error.__cause__}. Start its "
                "server, or name another registry."
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

    def hold(self) -> None:
        """Only one process may write: HomeInUse while there is another one. Gone with the process,
        however that ends."""
        self._held = self._engine.connect()
        if not hold(self._held):
            self.close()
            raise HomeInUse(
                f"another cluster writes the registry {shown(str(self._engine.url))} now; stop it "
                "there with `tacl down`, or use another registry"
            )

    def close(self) -> None:
        if self._held is not None:
            self._held.close()
        self._engine.dispose()

    def _write(self, write: str = "durable") -> AbstractContextManager[sa.Connection]:
        """A transaction; its steps are named after the method that writes."""
        return self._written(sys._getframe(1).f_code.co_name, write)

    @contextmanager
    def _written(self, name: str, write: str) -> Iterator[sa.Connection]:
        with self._reaching(), self._engine.execution_options(write=write).begin() as db:
            yield db
            failpoints.reached(f"registry {name} written")
        failpoints.reached(f"registry {name} committed")

    @contextmanager
    def _read(self) -> Iterator[sa.Connection]:
        with self._reaching(), self._engine.connect() as db:
            yield db

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """What the database cannot do now is StorageUnavailable: a full or read-only disk, a server
        that is away, a damaged file. A commit that raises it may have landed."""
        try:
            yield
        except DatabaseError as error:
            if type(error) is not DatabaseError and not isinstance(error, OperationalError):
                raise  # a defect of this program
            raise StorageUnavailable(
                f"the registry {shown(str(self._engine.url))} does not do what was asked: "
                f"{' '.join(str(error.orig).split())}. Look at its disk or server (`tacl doctor`); "
                "then repeat what you asked."
            ) from error.orig


def exists(db: sa.Connection, condition: sa.ColumnElement[bool]) -> bool:
    return bool(db.scalar(sa.select(sa.exists().where(condition))))
