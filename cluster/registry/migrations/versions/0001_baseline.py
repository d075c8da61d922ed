"""From 0.1.0, whose tables had no revision: tokens end, and say when they were last used."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("token")}
    for name in ("expires", "used"):
        if name not in there:  # it is, in what was made between 0.1.0 and this revision
            op.add_column("token", sa.Column(name, sa.Float, nullable=True))
    op.execute("UPDATE meta SET value = 'revisions' WHERE name = 'schema'")  # 0.1.0 refuses it
