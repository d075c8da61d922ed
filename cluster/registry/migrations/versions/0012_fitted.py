"""The events of fits are found without the others, of which there are thousands for each."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    only = sa.text("kind = 'fitted'")
    op.create_index(
        "ix_event_fitted",
        "event",
        ["run_id", "number"],
        sqlite_where=only,
        postgresql_where=only,
    )
