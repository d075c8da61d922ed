"""An event names in a column the recipe that became a user's model; before, in its text alone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

STRING = sa.String().with_variant(sa.String(collation="C"), "postgresql")
EVENT = sa.table("event", *map(sa.column, ("kind", "text", "composition")))
DIGEST = 64  # characters, with which the text of such an event ends


def upgrade() -> None:
    op.add_column("event", sa.Column("composition", STRING, nullable=True))
    digest = sa.func.substr(EVENT.c.text, sa.func.length(EVENT.c.text) - DIGEST + 1)
    composed = EVENT.update().where(EVENT.c.kind == "composed")
    op.get_bind().execute(composed.values(composition=digest))
