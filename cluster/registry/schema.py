"""The tables of the registry, and how SQLite is made to keep what it was given."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

SCHEMA = "1"  # a registry of another schema is refused
METADATA = sa.MetaData()


def _table(name: str, *columns: sa.Column | sa.Constraint) -> sa.Table:
    return sa.Table(name, METADATA, *columns)


def _column(name: str, kind: Any, *, nullable: bool = False, **options: Any) -> sa.Column:
    return sa.Column(name, kind, nullable=nullable, **options)


def _key(name: str, kind: Any = sa.String) -> sa.Column:
    return sa.Column(name, kind, primary_key=True)


META = _table("meta", _key("name"), _column("value", sa.Text))
TASK = _table(
    "task",
    _key("name"),
    _column("ordinal", sa.Integer, unique=True),
    _column("run_id", sa.String),
    _column("submission", sa.Text),
    _column("created", sa.Float),
)
SHARD = _table(
    "shard",
    _key("task"),
    _key("version", sa.Integer),
    _column("ordinal", sa.Integer),  # of the task
    _column("digest", sa.String),
    _column("rows", sa.Integer),
    _column("created", sa.Float),
)
RUN = _table(
    "run",
    _key("number", sa.Integer),  # order of acceptance
    _column("run_id", sa.String, unique=True),
    _column("kind", sa.String),
    _column("task", sa.String, nullable=True, index=True),
    _column("work", sa.Text),
    _column("state", sa.String, index=True),  # queued | running | done | failed
    _column("attempt", sa.Integer),  # number of the latest start; 0: never started
    _column("deaths", sa.Integer),  # processes lost since it was accepted or retried
    _column("cause", sa.Text, nullable=True),
    _column("reached", sa.Integer),  # the highest step that asked for its shards; -1: none
    _column("progress", sa.Text, nullable=True),
    _column("result", sa.Text, nullable=True),
    _column("created", sa.Float),
    _column("started", sa.Float, nullable=True),
    _column("ended", sa.Float, nullable=True),
)
ARRIVAL = _table(
    "arrival",
    _key("run_id"),
    _key("task"),
    _key("version", sa.Integer),
    _column("step", sa.Integer),
)
VECTOR = _table(
    "vector",
    _key("task"),
    _key("version", sa.Integer),
    _column("run_id", sa.String, unique=True),
    _column("reference", sa.Text),
    _column("norm", sa.Float, nullable=True),
    _column("config", sa.Text),
    _column("curves", sa.Text),
    _column("created", sa.Float),
)
PAIR = _table(
    "pair",
    _key("task"),  # whose vector
    _key("version", sa.Integer),
    _key("on"),  # whose probe
    _key("shard_digest"),
    _column("vector_digest", sa.String),
    _column("tau_jp", sa.Float),
    _column("standard_error", sa.Float),
    _column("rows", sa.Integer),
)
ALIAS = _table("alias", _key("task"), _key("name"), _column("version", sa.Integer))
COMPOSITION = _table(
    "composition", _key("digest"), _column("method", sa.String), _column("terms", sa.Text)
)
USER = _table("user", _key("name"), _column("composition", sa.String, nullable=True))
REQUEST = _table(
    "request", _key("request_id"), _column("asked", sa.String), _column("answer", sa.Text)
)
EVENT = _table(
    "event",
    _key("number", sa.Integer),
    _column("at", sa.Float),
    _column("kind", sa.String),
    _column("task", sa.String, nullable=True, index=True),
    _column("run_id", sa.String, nullable=True),
    _column("text", sa.Text),
)


def make_durable(engine: sa.Engine) -> None:
    """SQLite: readers beside one writer, and a commit that is on the disk when it returns.

    Engine option `write`: "durable"; or "relaxed", which survives the death of any process and may
    be lost, in order, with the machine; without it a transaction only reads. The driver's own
    transactions are switched off: they start at the first write, too late to hold what was read.
    """

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _: object) -> None:
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "busy_timeout=10000"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _on_begin(connection: sa.Connection) -> None:
        write = connection.get_execution_options().get("write")
        connection.exec_driver_sql(
            f"PRAGMA synchronous={'NORMAL' if write == 'relaxed' else 'FULL'}"
        )
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
