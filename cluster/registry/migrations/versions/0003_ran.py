"""How long the runs of a user ran, by the hour in which they ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

STRING = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "ran",
        sa.Column("user", STRING, primary_key=True),
        sa.Column("hour", sa.Integer, primary_key=True),
        sa.Column("seconds", sa.Float, nullable=False),
    )
