"""What was measured of a vector is a record for each probe in a few rows, instead of a row each."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

BLOCK = 128
STRING = sa.String().with_variant(sa.String(collation="C"), "postgresql")
RECORD = struct.Struct("<4I4d")
SIZES = ("tau_jp", "standard_error", "logits", "logits_error")
PROBE = ("task", "version", "on", "shard_digest", "rows", "head")
PAIR = sa.table("pair", *map(sa.column, (*PROBE, *SIZES)))
SHARD = sa.table("shard", *map(sa.column, ("task", "digest", "ordinal", "version")))


def upgrade() -> None:
    effect = op.create_table(
        "effect",
        sa.Column("task", STRING, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("block", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("measured", sa.LargeBinary, nullable=False),
    )
    db = op.get_bind()
    for task, version in db.execute(sa.select(PAIR.c.task, PAIR.c.version).distinct()).all():
        for block, measured in _blocks(db, task, version):
            row = {"task": task, "version": version, "block": block, "measured": measured}
            db.execute(effect.insert().values(row))
    op.drop_table("pair")


def _blocks(db: sa.Connection, task: str, version: int) -> Iterator[tuple[int, bytes]]:
    same = (SHARD.c.task == PAIR.c.on) & (SHARD.c.digest == PAIR.c.shard_digest)
    sizes = (PAIR.c[name] for name in SIZES)
    columns = SHARD.c.ordinal, SHARD.c.version, PAIR.c.rows, PAIR.c.head, *sizes
    query = sa.select(*columns).join(SHARD, same).where(PAIR.c.task == task)
    query = query.where(PAIR.c.version == version).order_by(SHARD.c.ordinal, SHARD.c.version)
    for block, rows in groupby(db.execute(query).all(), key=lambda row: row.ordinal // BLOCK):
        yield block, b"".join(map(_record, rows))


def _record(row: sa.Row[Any]) -> bytes:
    sizes = (getattr(row, name) for name in SIZES)
    known = (float("nan") if size is None else size for size in sizes)
    return RECORD.pack(row.ordinal, row.version, row.rows, bool(row.head), *known)
