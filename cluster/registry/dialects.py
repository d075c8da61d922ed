"""SQLite and PostgreSQL, made to keep the same promises.

A commit is on disk when it returns. One transaction writes at a time, and sees all that was written
before it. A transaction that reads sees one snapshot.

Engine option `write`: "durable"; or "relaxed", which survives the death of any process and may be
lost, in order, with the machine. Without the option a transaction only reads.

Nothing waits for ever. A reader beside the process that writes waits TIMEOUT for a connection to
PostgreSQL and for each answer; with SQLite everybody waits as long for another one's lock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError

from cluster.domain.urls import require_open, shown
from tacl.errors import BadConfig

WRITERS = 0x7AC1  # the lock that a transaction holds while it writes
TIMEOUT = 10.0  # seconds


def engine_of(url: str, read_only: bool = False, answer_timeout: float | None = None) -> sa.Engine:
    """Raises BadConfig for an invalid URL, an unknown back end, or one whose driver is not
    installed. `read_only`: the database itself refuses writes, and no file is created.
    `answer_timeout`: seconds that a writer waits for each answer of PostgreSQL."""
    try:
        parsed = sa.make_url(url)
    except (ArgumentError, ValueError) as error:  # a ValueError if its port is no number
        raise BadConfig(f"{shown(url)!r} is no URL of a registry; use {FORMS}") from error
    backend = parsed.get_backend_name()
    if backend not in SET_UP:
        raise BadConfig(
            f"a registry is kept in sqlite or postgresql, not in {backend}; use {FORMS}"
        )
    if parsed.password is not None or "password" in parsed.query:
        require_open(url)
    if backend == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")
    else:  # no character of a path means what it does in a URL
        path, query = url.partition("://")[2][1:], dict[str, str]()
        if not path.startswith("/"):
            raise BadConfig(
                f"the registry {url} has no absolute path, and would be another one in each "
                f"directory; use {FORMS}"
            )
        if read_only:
            path, query = f"file:{quote(path)}", {"mode": "ro", "uri": "true"}
        parsed = parsed.set(database=path, query=query)
    try:
        engine = sa.create_engine(parsed, pool_pre_ping=backend == "postgresql")
    except ModuleNotFoundError as error:
        raise BadConfig(
            f"the registry {shown(url)} needs {error.name}: install the extra postgres "
            "(docs/how-to/integrations.md)"
        ) from error
    SET_UP[backend](engine, read_only, answer_timeout)
    return engine


# So that the lock of a machine that vanished is free after half a minute; otherwise the server
# would keep it for two hours.
KEEPALIVE = (
    "SELECT set_config('tcp_keepalives_idle', '10', false), "
    "set_config('tcp_keepalives_interval', '5', false), "
    "set_config('tcp_keepalives_count', '3', false)"
)


def _set_up_sqlite(engine: sa.Engine, read_only: bool, _: float | None) -> None:
    """Switch off the driver's own transactions: they start at the first write, too late to hold
    what was read."""

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _: object) -> None:
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout={round(1000 * TIMEOUT)}")
        if not read_only:
            connection.execute("PRAGMA journal_mode=WAL")

    @event.listens_for(engine, "begin")
    def _on_begin(connection: sa.Connection) -> None:
        write = connection.get_execution_options().get("write")
        if not write:  # directly: through SQLAlchemy it takes longer than many reads
            driver: Any = connection.connection.driver_connection
            driver.execute("BEGIN")
            return
        synchronous = "NORMAL" if write == "relaxed" else "FULL"
        if connection.info.get("synchronous") != synchronous:  # as the last transaction left it
            connection.exec_driver_sql(f"PRAGMA synchronous={synchronous}")
            connection.info["synchronous"] = synchronous
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _set_up_postgresql(engine: sa.Engine, read_only: bool, answer_timeout: float | None) -> None:
    """Writers wait for one lock. Each of their statements sees what was committed before it: a
    snapshot taken when the transaction began would predate the wait."""

    @event.listens_for(engine, "do_connect")
    def _on_connect(_: object, __: object, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        from cluster.registry.timeouts import TimeoutConnection  # its driver is an extra

        wait = {"connect_timeout": math.ceil(TIMEOUT)}  # whole seconds, at least two
        connection = TimeoutConnection.connect(*arguments, **wait | named)
        connection.answer_timeout = TIMEOUT
        connection.execute(KEEPALIVE)
        connection.commit()
        connection.answer_timeout = TIMEOUT if read_only else answer_timeout
        return connection

    @event.listens_for(engine, "begin")
    def _on_begin(connection: sa.Connection) -> None:
        write = connection.get_execution_options().get("write")
        if read_only or not write:
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            return
        if write == "relaxed":
            connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITERS})")


def acquire_writer(connection: sa.Connection) -> bool:
    """Become the writer for as long as this connection lives; False when another process is.
    SQLite's file is in a home, whose own lock ensures this."""
    if connection.dialect.name == "sqlite":
        return True
    place = "SELECT pg_try_advisory_lock(hashtext(current_schema()))"
    taken = bool(connection.exec_driver_sql(place).scalar())
    connection.rollback()  # the session has the lock; an open transaction would hold back others
    return taken


def wait_for_writer(connection: sa.Connection) -> None:
    """Wait until the transaction that writes now has ended. On a server it may still be committing
    though its connection was lost; in SQLite it ended with its call."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITERS})")


SET_UP = {"sqlite": _set_up_sqlite, "postgresql": _set_up_postgresql}
FORMS = "sqlite:////PATH or postgresql://USER@HOST/DATABASE"
