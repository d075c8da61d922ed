"""Heads that were fitted under one model."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("made", sa.Column("fitted", sa.Text, nullable=True))
