"""Tasks whose samples are the same kind of data."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

STRING = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "near",
        sa.Column("task", STRING, primary_key=True),
        sa.Column("other", STRING, primary_key=True),
    )
