"""Files that nothing refers to any more are owed their erasure too, from a moment on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("erasure", sa.Column("due", sa.Float(), nullable=False, server_default="0"))
    with op.batch_alter_table("erasure") as table:
        table.alter_column("due", server_default=None)
