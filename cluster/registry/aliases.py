"""Aliases: names of a task that point to one of its versions, moved by compare and swap."""

from __future__ import annotations

import sqlalchemy as sa

from cluster.messages import CHAMPION
from cluster.registry.database import Database, exists
from cluster.registry.schema import ALIAS


class Aliases(Database):
    """Which version a name means now."""

    def aliases(self, task: str) -> dict[str, int]:
        with self._read() as db:
            rows = db.execute(sa.select(ALIAS).where(ALIAS.c.task == task))
            return {row.name: row.version for row in rows}


def is_champion(table: sa.Table) -> sa.ColumnElement[bool]:
    same = sa.and_(ALIAS.c.task == table.c.task, ALIAS.c.version == table.c.version)
    return sa.and_(same, ALIAS.c.name == CHAMPION)


def move(db: sa.Connection, task: str, name: str, expected: int | None, version: int) -> bool:
    """Compare and swap: only from the expected version (None: from nowhere)."""
    if expected is None:
        if exists(db, sa.and_(ALIAS.c.task == task, ALIAS.c.name == name)):
            return False
        db.execute(ALIAS.insert().values(task=task, name=name, version=version))
        return True
    held = sa.and_(ALIAS.c.task == task, ALIAS.c.name == name, ALIAS.c.version == expected)
    return db.execute(ALIAS.update().where(held).values(version=version)).rowcount == 1
