"""Whose a run and a task is, which model an evaluation is of, and which tasks a model holds: one
person's question is answered by an index."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

ROWS = 1000  # written at once
STRING = sa.String().with_variant(sa.String(collation="C"), "postgresql")
TASK = sa.table("task", *map(sa.column, ("name", "submission", "owner")))
RUN = sa.table(
    "run", *map(sa.column, ("run_id", "kind", "task", "work", "user", "model", "version"))
)
COMPOSITION = sa.table("composition", sa.column("digest"), sa.column("terms"))
HOLDS = sa.table("holds", sa.column("task"), sa.column("composition"))
Row = dict[str, Any]


def upgrade() -> None:
    op.add_column("task", sa.Column("owner", STRING, nullable=True))
    for name, kind in (("user", STRING), ("model", STRING), ("version", sa.Integer)):
        op.add_column("run", sa.Column(name, kind, nullable=True))
    keys = (sa.Column(name, STRING, primary_key=True) for name in ("task", "composition"))
    op.create_table("holds", *keys)
    db = op.get_bind()
    _set(db, TASK, TASK.c.name, _tasks(db))
    _set(db, RUN, RUN.c.run_id, _runs(db))
    for rows in _some(_holds(db)):
        db.execute(HOLDS.insert(), rows)
    op.create_index("ix_task_owner", "task", ["owner"])
    op.create_index("ix_task_removed", "task", ["removed", "name"])
    op.create_index("ix_run_user", "run", ["user"])
    op.create_index("ix_run_model", "run", ["model"])
    op.create_index("ix_run_kind", "run", ["kind", "state", "number", "run_id"])
    op.create_index("ix_user_composition", "user", ["composition"])


def _tasks(db: sa.Connection) -> Iterator[Row]:
    for row in db.execute(sa.select(TASK.c.name, TASK.c.submission)).all():
        yield {"key": row.name, "owner": json.loads(row.submission)["owner"]}


def _runs(db: sa.Connection) -> Iterator[Row]:
    """One at a time: the work of a refresh may be long."""
    kinds = ("train", "refresh", "compose", "evaluate")
    for run_id in db.scalars(sa.select(RUN.c.run_id).where(RUN.c.kind.in_(kinds))).all():
        work = json.loads(db.scalars(sa.select(RUN.c.work).where(RUN.c.run_id == run_id)).one())
        about = work.get("submission") or work.get("composition") or {}
        yield {
            "key": run_id,
            "user": work.get("user") or about.get("owner") or about.get("user"),
            "model": about.get("digest"),
            "version": work["vector"]["version"] if work["kind"] == "refresh" else None,
        }


def _holds(db: sa.Connection) -> Iterator[Row]:
    for row in db.execute(sa.select(COMPOSITION.c.digest, COMPOSITION.c.terms)).all():
        for task in {term["vector"]["task"] for term in json.loads(row.terms)}:
            yield {"task": task, "composition": row.digest}


def _set(db: sa.Connection, table: Any, key: Any, rows: Iterable[Row]) -> None:
    for some in _some(rows):
        values = {name: sa.bindparam(f"new_{name}") for name in some[0] if name != "key"}
        change = table.update().where(key == sa.bindparam("new_key")).values(values)
        db.execute(change, [{f"new_{name}": row[name] for name in row} for row in some])


def _some(rows: Iterable[Row]) -> Iterator[list[Row]]:
    iterator = iter(rows)
    while some := list(islice(iterator, ROWS)):
        yield some
