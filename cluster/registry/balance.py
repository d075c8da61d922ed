"""What may be spent on measuring and refreshing, as `cluster.scheduler.budget` counts it."""

from __future__ import annotations

import sqlalchemy as sa

from cluster.registry.database import Database, put
from cluster.registry.schema import META

THIS = META.c.name == "balance"


class Balance(Database):
    def balance(self) -> int:
        with self._read() as db:
            return int(db.scalar(sa.select(META.c.value).where(THIS)) or 0)


def change_balance(db: sa.Connection, by: int) -> None:
    old = db.scalar(sa.select(META.c.value).where(THIS))
    if old is None:
        put(db, META, name="balance", value=str(by))
    else:
        db.execute(META.update().where(THIS).values(value=str(int(old) + by)))
