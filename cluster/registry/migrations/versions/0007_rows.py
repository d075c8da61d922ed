"""The digest of a task's rows has a column: who submits the same is found without reading all."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

STRING = sa.String().with_variant(sa.String(collation="C"), "postgresql")
TASK = sa.table("task", *map(sa.column, ("name", "submission", "rows")))


def upgrade() -> None:
    op.add_column("task", sa.Column("rows", STRING, nullable=True))
    db = op.get_bind()
    for name, submission in db.execute(sa.select(TASK.c.name, TASK.c.submission)).all():
        if rows := json.loads(submission).get("rows"):
            db.execute(TASK.update().where(TASK.c.name == name).values(rows=rows))
    op.create_index("ix_task_rows", "task", ["rows"])
