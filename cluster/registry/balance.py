"""What may be spent on measuring and refreshing, as `cluster.scheduler.budget` counts it."""

from __future__ import annotations

import sqlalchemy as sa

from cluster.registry.database import Database, upsert, value
from cluster.registry.schema import META


class Balance(Database):
    def balance(self) -> int:
        with self._read() as db:
            return _balance(db)


def change_balance(db: sa.Connection, by: int) -> None:
    if by:
        upsert(db, META, {"name": "balance"}, value=str(_balance(db) + by))


def _balance(db: sa.Connection) -> int:
    return int(value(db, META.c.value, name="balance") or 0)
