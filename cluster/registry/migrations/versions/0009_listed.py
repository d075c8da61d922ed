"""The tasks of a fit of heads lie in a blob. Of one that is done nobody reads them any more; one
that is not is asked for again by whoever opens the registry next."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

RUN = sa.table("run", *map(sa.column, ("run_id", "kind", "state", "work")))


def upgrade() -> None:
    db, fit = op.get_bind(), RUN.c.kind == "fit"
    db.execute(RUN.delete().where(fit, RUN.c.state != "done"))
    for run_id, text in db.execute(sa.select(RUN.c.run_id, RUN.c.work).where(fit)).all():
        work = json.loads(text)
        work["listed"] = {"digest": "", "rows": len(work.pop("tasks"))}
        db.execute(RUN.update().where(RUN.c.run_id == run_id).values(work=json.dumps(work)))
