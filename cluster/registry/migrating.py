"""Migrates a registry of an earlier version to the schema of this one: forward only, in one
transaction, so that of two processes one does it and a process that dies has changed nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from cluster.registry.database import Database, revision
from cluster.registry.dialects import acquire_writer
from cluster.registry.schema import REVISION
from tacl.errors import StorageUnavailable


@dataclass(frozen=True)
class Migrated:
    """From which revision to which; `snapshot`: SQLite's file as it was before, if it was one."""

    before: str
    after: str
    snapshot: Path | None

    def __str__(self) -> str:
        kept = f"; as it was before, it is kept in {self.snapshot}" if self.snapshot else ""
        return f"the registry was brought from schema {self.before} to {self.after}{kept}"


def migrate(url: str, folder: Path) -> Migrated | None:
    """None when there is nothing to do: it has this schema, a newer one or none yet. SQLite's file
    is copied into `folder` first. Raises HomeInUse, StorageUnavailable."""
    with closing(_AnySchema(url)) as registry:
        return registry.migrate(folder)


class _AnySchema(Database):
    answer_timeout = None  # a table of millions of rows may be rewritten

    def _open(self, name: str) -> None:
        """Creates nothing, and refuses nothing."""

    def migrate(self, folder: Path) -> Migrated | None:
        with self._write() as db:
            found = revision(db)
            if found is None or found >= REVISION:
                return None
            self._require_alone()
            snapshot = self._snapshot(folder, found)
            _upgrade(db)
        return Migrated(found, REVISION, snapshot)

    def _require_alone(self) -> None:
        """Raises HomeInUse while an earlier version's cluster writes it, which would go on so."""
        with self._engine.connect() as held:
            if not acquire_writer(held):
                raise self._superseded()

    def _snapshot(self, folder: Path, found: str) -> Path | None:
        """Copy SQLite's file by its own connection, which sees only commits. A server has
        backups."""
        if self._engine.dialect.name != "sqlite":
            return None
        path = folder / f"registry-{found}.sqlite"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.unlink(missing_ok=True)  # left by a process that died here
            with closing(self._engine.raw_connection()) as connection:
                connection.cursor().execute("VACUUM INTO ?", (str(path),))
            path.chmod(0o600)
        except (OSError, sqlite3.Error) as error:
            with suppress(OSError):
                path.unlink()
            raise StorageUnavailable(
                f"the registry is to be kept in {path} as it is before its migration: {error}. "
                "Free some space there; then repeat what you asked"
            ) from error
        return path


def _upgrade(db: sa.Connection) -> None:
    """Run the migrations. Alembic is imported only when there is something to do."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "cluster.registry:migrations")
    config.attributes["connection"] = db
    command.upgrade(config, "head")
