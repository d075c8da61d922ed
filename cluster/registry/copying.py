"""Copies a whole registry from one database into another: SQLite or PostgreSQL, either way."""

from __future__ import annotations

import sqlalchemy as sa

from cluster.domain.urls import shown
from cluster.registry.database import Database, epoch, upsert, value
from cluster.registry.schema import EVENT, META, METADATA
from tacl.errors import HomeInUse

UNFINISHED = "unfinished"  # the row of META of a copy that is to be repeated; the writer's epoch
ROWS = 100  # read and written at once: the work in some is long


def copy(source: Database, target: Database, unfinished: bool = False) -> None:
    """Copy every row as of one snapshot. Raises HomeInUse when the target is not empty.
    `unfinished`: until `finish` the target still counts as empty, so that this can be repeated."""
    with source._read() as old, target._write() as new:
        _require_empty(new)
        for table in METADATA.sorted_tables:
            new.execute(table.delete())  # an empty registry too has rows: which schema it has
            found = old.execute(sa.select(table), execution_options={"yield_per": ROWS})
            for rows in found.mappings().partitions():
                new.execute(table.insert(), [dict(row) for row in rows])
            _go_on_counting(new, table)
        if unfinished:
            upsert(new, META, {"name": UNFINISHED}, value=str(epoch(new)))


def finish(target: Database) -> None:
    with target._write() as db:
        db.execute(META.delete().where(META.c.name == UNFINISHED))


def require_empty(target: Database) -> None:
    """Check before what takes long. Raises HomeInUse when the target keeps something already."""
    with target._read() as db:
        _require_empty(db)


def _require_empty(db: sa.Connection) -> None:
    if value(db, META.c.value, name=UNFINISHED) == str(epoch(db)):
        return  # and no cluster has written here since
    if db.scalar(sa.select(sa.exists().select_from(EVENT))):
        raise HomeInUse(
            f"the registry {shown(str(db.engine.url))} keeps a home already; name one that is empty"
        )


def _go_on_counting(db: sa.Connection, table: sa.Table) -> None:
    """Give the next row the next number; SQLite does so by itself."""
    column = table.autoincrement_column
    if column is None or db.dialect.name != "postgresql":
        return
    name = db.dialect.identifier_preparer.format_table(table)
    last = sa.select(sa.func.max(column)).scalar_subquery()
    sequence = sa.func.pg_get_serial_sequence(name, column.name)
    db.execute(sa.select(sa.func.setval(sequence, sa.func.coalesce(last, 1), last.is_not(None))))
