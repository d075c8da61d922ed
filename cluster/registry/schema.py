"""The tables of the registry."""

from __future__ import annotations

from typing import Any, Final, Literal

import sqlalchemy as sa

REVISION = "0012"  # the newest of `migrations`, which turn earlier tables into these
CANCELLED: Final = "cancelled"  # of a task: before it had a vector; its name is free again
Removal = Literal["removed", "purged", "cancelled"]  # of a task
METADATA = sa.MetaData()
STRING = sa.String().with_variant(sa.String(collation="C"), "postgresql")  # ordered by its bytes


def _table(name: str, *columns: sa.Column | sa.Constraint) -> sa.Table:
    return sa.Table(name, METADATA, *columns)


def _column(name: str, kind: Any, *, nullable: bool = False, **options: Any) -> sa.Column:
    return sa.Column(name, kind, nullable=nullable, **options)


def _key(name: str, kind: Any = STRING) -> sa.Column:
    return sa.Column(name, kind, primary_key=True)


# Alembic's own table; the rest are ours.
VERSION = sa.Table("alembic_version", sa.MetaData(), _key("version_num", sa.String(32)))
META = _table("meta", _key("name"), _column("value", sa.Text))
TASK = _table(
    "task",
    _key("name"),
    _column("ordinal", sa.Integer, unique=True),
    _column("run_id", STRING),
    _column("submission", sa.Text),
    _column("created", sa.Float),
    _column("removed", STRING, nullable=True),  # a Removal
    _column("head", STRING),  # blob digest, once it has a vector
    _column("owner", STRING, nullable=True, index=True),  # none: of an older home
    _column("rows", STRING, nullable=True, index=True),  # digest of what was submitted, if known
)
sa.Index("ix_task_removed", TASK.c.removed, TASK.c.name)
SHARD = _table(
    "shard",
    _key("task"),
    _key("version", sa.Integer),
    _column("ordinal", sa.Integer),  # of the task
    _column("digest", STRING),
    _column("rows", sa.Integer),
    _column("statistics", STRING, nullable=True),  # what others see instead of the samples
    _column("created", sa.Float),
)
# the shard is of the task that has its name now, not of a cancelled one that had it before
OF_TASK = (TASK.c.name == SHARD.c.task) & (TASK.c.ordinal == SHARD.c.ordinal)
RUN = _table(
    "run",
    _key("number", sa.Integer),  # order of acceptance
    _column("run_id", STRING, unique=True),
    _column("kind", STRING),
    _column("task", STRING, nullable=True, index=True),
    _column("work", sa.Text),
    # queued | running | done | failed | cancelled (by a person) | withdrawn (with a removed task)
    _column("state", STRING, index=True),
    _column("attempt", sa.Integer),  # number of the latest start; 0: never started
    _column("deaths", sa.Integer),  # processes lost since it was accepted or retried
    _column("cause", sa.Text, nullable=True),
    _column("reached", sa.Integer),  # the last step that was leased; -1: none
    _column("progress", sa.Text, nullable=True),
    _column("result", sa.Text, nullable=True),
    _column("created", sa.Float),
    _column("started", sa.Float, nullable=True),
    _column("ended", sa.Float, nullable=True),
    _column("user", STRING, nullable=True, index=True),  # the requester
    _column("model", STRING, nullable=True, index=True),  # the digest of the one that is evaluated
    _column("version", sa.Integer, nullable=True),  # of the task's vector that is refreshed
)
sa.Index("ix_run_kind", RUN.c.kind, RUN.c.state, RUN.c.number, RUN.c.run_id)
RAN = _table(  # how long a user's runs ran, by the hour since 1970 in which they ended
    "ran", _key("user"), _key("hour", sa.Integer), _column("seconds", sa.Float)
)
ARRIVAL = _table(
    "arrival",
    _key("run_id"),
    _key("task"),
    _key("version", sa.Integer),
    _column("step", sa.Integer),
    _column("left", sa.Integer, nullable=True),  # the first step after its task was removed
)
OF_SHARD = (ARRIVAL.c.task == SHARD.c.task) & (ARRIVAL.c.version == SHARD.c.version)
VECTOR = _table(
    "vector",
    _key("task"),
    _key("version", sa.Integer),
    _column("run_id", STRING, unique=True),
    _column("reference", sa.Text),
    _column("norm", sa.Float, nullable=True),
    _column("config", sa.Text),
    _column("curves", sa.Text),
    _column("created", sa.Float),
)
EFFECT = _table(  # what a version does to the inputs of a block of tasks (`effects`)
    "effect",
    _key("task"),
    _key("version", sa.Integer),
    _key("block", sa.Integer),
    _column("measured", sa.LargeBinary),
)
# tasks whose samples are the same kind of data, as the training of `task` found
NEAR = _table("near", _key("task"), _key("other"))
ALIAS = _table("alias", _key("task"), _key("name"), _column("version", sa.Integer))
MOVE = _table(
    "move",
    _key("number", sa.Integer),
    _column("at", sa.Float),
    _column("task", STRING, index=True),
    _column("name", STRING),
    _column("came_from", sa.Integer, nullable=True),  # version before; none: the alias is new
    _column("version", sa.Integer),
    _column("cause", STRING),  # published | asked
)
ERASURE = _table(  # blobs to delete, which may still be stored
    "erasure",
    _key("digest"),
    _column("due", sa.Float),  # 0: of a purged task; else the time from which it goes, if unneeded
)
COMPOSITION = _table(
    "composition", _key("digest"), _column("method", STRING), _column("terms", sa.Text)
)
# tasks whose vectors are in a composition
HOLDS = _table("holds", _key("task"), _key("composition"))
MADE = _table(  # what a composition has beside its terms
    "made",
    _key("digest"),
    _column("run_id", STRING),
    _column("merged", sa.Text, nullable=True),
    _column("target", sa.Text, nullable=True),
    _column("fitted", sa.Text, nullable=True),
)
AWAITED = _table("awaited", _key("user"), _column("run_id", STRING, index=True))
USER = _table("user", _key("name"), _column("composition", STRING, nullable=True, index=True))
TOKEN = _table(
    "token",
    _key("hash"),  # sha256 of the token, which is not stored
    _column("user", STRING, index=True),
    _column("role", STRING),
    _column("created", sa.Float),
    _column("expires", sa.Float, nullable=True),
    _column("used", sa.Float, nullable=True),  # about when it was used last
)
REQUEST = _table(  # what was answered within a week
    "request",
    _key("request_id"),
    _column("asked", STRING),
    _column("answer", sa.Text),
    _column("at", sa.Float, index=True),
)
EVENT = _table(
    "event",
    _key("number", sa.Integer),
    _column("at", sa.Float),
    _column("kind", STRING),
    _column("task", STRING, nullable=True, index=True),
    _column("run_id", STRING, nullable=True),
    _column("text", sa.Text),
    _column("composition", STRING, nullable=True),  # digest of what became a user's model
)
# no parameter: PostgreSQL's prepared statements may not use the index for one
FITTED = sa.text("kind = 'fitted'")
sa.Index(
    "ix_event_fitted",
    *(EVENT.c.run_id, EVENT.c.number),
    sqlite_where=FITTED,
    postgresql_where=FITTED,
)
