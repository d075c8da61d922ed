"""When a request was answered: answers are kept for some time. Those of before count as given now,
by a default, so that a table of millions is not written anew."""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    now = sa.text(str(time.time()))
    op.add_column("request", sa.Column("at", sa.Float(), nullable=False, server_default=now))
    op.create_index("ix_request_at", "request", ["at"])
