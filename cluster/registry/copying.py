"""Copies a whole registry from one database into another: SQLite or PostgreSQL, either way."""

from __future__ import annotations

import sqlalchemy as sa

from cluster.domain.urls import shown
from cluster.registry.database import Database
from cluster.registry.schema import EVENT, METADATA
from tacl.errors import HomeInUse

ROWS = 100  # read and written at once: the work in some is long


def copy(source: Database, target: Database) -> None:
    """Copy every row as of one snapshot. Raises HomeInUse when the target is not empty."""
    with source._read() as old, target._write() as new:
        _require_empty(new)
        for table in METADATA.sorted_tables:
            new.execute(table.delete())  # an empty registry too has rows: which schema it has
            found = old.execute(sa.select(table), execution_options={"yield_per": ROWS})
            for rows in found.mappings().partitions():
                new.execute(table.insert(), [dict(row) for row in rows])
            _go_on_counting(new, table)


def require_empty(target: Database) -> None:
    """Check before what takes long. Raises HomeInUse when the target keeps something already."""
    with target._read() as db:
        _require_empty(db)


def _require_empty(db: sa.Connection) -> None:
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
