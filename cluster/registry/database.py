"""One database: opened, checked, read and written in transactions."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError, InternalError, OperationalError

from cluster import failpoints
from cluster.domain.urls import shown
from cluster.registry.dialects import acquire_writer, engine_of, wait_for_writer
from cluster.registry.schema import META, METADATA, REQUEST, REVISION, VERSION
from cluster.registry.stopwatch import Stopwatch
from tacl.errors import BadConfig, HomeInUse, StorageUnavailable

WRITER = "writer"  # the row of META with the epoch
MIGRATE = "Migrate it: `tacl doctor --migrate`, or `tacl up`, which does that."
NEWER = "Use the version of TACL that wrote it, or a newer one."
NAMED = 1000  # names in a statement
KEPT = 7 * 24 * 3600.0  # seconds, at least, for which an answer is kept
FORGOTTEN = 4  # answers, at most, that are deleted when one is added
_OLD = sa.select(REQUEST.c.request_id).where(REQUEST.c.at < sa.bindparam("before"))
_FORGET = REQUEST.delete().where(
    REQUEST.c.request_id.in_(_OLD.order_by(REQUEST.c.at).limit(FORGOTTEN))
)


@dataclass(frozen=True)
class Request:
    """A client's id for a request, a digest of what is requested, and the answer, returned again
    while it is kept."""

    request_id: str
    asked: str
    answer: str


class Database:
    """What every part of the registry builds on. `url`: as SQLAlchemy reads it. `read_only`: beside
    the process that writes; nothing is created or written: BadConfig where it would be."""

    # Seconds that a writer waits for each answer: longer than any statement of a large home takes,
    # shorter than a lost connection goes unnoticed.
    answer_timeout: ClassVar[float | None] = 60.0

    def __init__(self, url: str, read_only: bool = False) -> None:
        self._engine, self._read_only = engine_of(url, read_only, self.answer_timeout), read_only
        self._moment = threading.local()
        self._held: sa.Connection | None = None
        self.reads, self.writes = Stopwatch(), Stopwatch()
        self._is_locked = False
        self._epoch: int | None = None  # None: not a lasting writer, as for checks before a start
        try:
            self._open(shown(url))
        except BaseException as error:
            self.close()  # nobody else could
            if not isinstance(error, StorageUnavailable):
                raise
            raise BadConfig(
                f"the registry {shown(url)} cannot be reached: {error.__cause__}. Start its "
                "server, or name another registry."
            ) from error

    def _open(self, name: str) -> None:
        """Create the tables the first time. Raises BadConfig for tables of another revision."""
        with self._read() if self._read_only else self._write() as db:
            found = revision(db)
            if found is None and not self._read_only:
                for metadata in (METADATA, VERSION.metadata):
                    metadata.create_all(db)
                put(db, META, name="schema", value="revisions")  # 0.1.0 reads and refuses it
                put(db, VERSION, version_num=REVISION)
            elif found != REVISION:
                raise BadConfig(
                    f"the registry {name} has schema {found}; this version of TACL reads schema "
                    f"{REVISION}. {NEWER if found and found > REVISION else MIGRATE}"
                )

    def acquire_writer(self) -> None:
        """Become the one process that writes. Raises HomeInUse while there is another.

        A lock, which is lost with its connection, shows whether there is. What keeps two from
        writing is the epoch: a number that each raises when it becomes the writer, and compares in
        every transaction.
        """
        self._held = self._engine.connect()
        self._is_locked = acquire_writer(self._held)
        if not self._is_locked:
            self.close()
            raise self._superseded()
        with self._write() as db:
            new = 1 + epoch(db)
            upsert(db, META, {"name": WRITER}, value=str(new))
        self._epoch = new

    def check_writer(self) -> None:
        """Raises HomeInUse once another process has become the writer. If the connection was lost,
        the lock is taken again."""
        assert self._held is not None, "hold comes first"
        with self._reaching():
            try:
                self._is_locked = self._is_locked and not self._held.invalidated
                self._is_locked = self._is_locked or acquire_writer(self._held)
                self._require_current(self._held)
            finally:
                self._held.rollback()

    def _require_current(self, db: sa.Connection) -> None:
        if self._epoch is not None and epoch(db) != self._epoch:
            raise self._superseded()

    def _superseded(self) -> HomeInUse:
        return HomeInUse(
            f"another cluster writes the registry {shown(str(self._engine.url))} now; stop it "
            "there with `tacl down`, or use another registry"
        )

    def close(self) -> None:
        if self._held is not None:
            self._held.close()
        self._engine.dispose()

    def _write(
        self, write: str = "durable", request: Request | None = None
    ) -> AbstractContextManager[sa.Connection]:
        """A transaction, which also keeps the answer to a request; its failpoints have the name of
        the method that writes."""
        return self._written(sys._getframe(1).f_code.co_name, write, request)

    @contextmanager
    def _written(self, name: str, write: str, request: Request | None) -> Iterator[sa.Connection]:
        begun = self._engine.execution_options(write=write).begin
        with self.writes.running(), self._reaching(), begun() as db:
            self._require_current(db)
            yield db
            if request is not None:
                put(db, REQUEST, **vars(request))
                db.execute(_FORGET, {"before": time.time() - KEPT})
            failpoints.reached(f"registry {name} written")
        failpoints.reached(f"registry {name} committed")

    def await_commit(self) -> None:
        """Return once a commit whose answer was lost has ended: what is read earlier may not be
        what holds."""
        with self._read() as db:
            wait_for_writer(db)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """A snapshot: all that this thread reads inside is as of the first of these reads."""
        with self._reaching(), self._engine.connect() as self._moment.db:
            try:
                yield
            finally:
                del self._moment.db

    @contextmanager
    def _read(self) -> Iterator[sa.Connection]:
        with self.reads.running(), self._reaching(), self._connected() as db:
            yield db

    def _connected(self) -> AbstractContextManager[sa.Connection]:
        now: sa.Connection | None = getattr(self._moment, "db", None)
        return self._engine.connect() if now is None else nullcontext(now)

    def _rows(self, query: sa.Select, **key: Any) -> Sequence[sa.Row]:
        """The rows of a query, with these values for its parameters."""
        with self._read() as db:
            return db.execute(query, of(**key)).all()

    def _values(self, query: sa.Select | sa.CompoundSelect, **key: Any) -> Sequence[Any]:
        """The values of a query of one column."""
        with self._read() as db:
            return db.scalars(query, of(**key)).all()

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Raises StorageUnavailable for what the database cannot do now: a full or read-only disk,
        a server that is down or a standby, a damaged file. A commit that raises it may have
        landed."""
        try:
            yield
        except DatabaseError as error:
            if type(error) not in (DatabaseError, InternalError, OperationalError):
                raise  # a bug in this program
            raise StorageUnavailable(
                f"the registry {shown(str(self._engine.url))} does not do what was asked: "
                f"{' '.join(str(error.orig).split())}. Look at its disk or server (`tacl doctor`); "
                "then repeat what you asked."
            ) from error.orig


def epoch(db: sa.Connection) -> int:
    """How often a process became the writer."""
    return int(value(db, META.c.value, name=WRITER) or 0)


def revision(db: sa.Connection) -> str | None:
    """The revision of its tables, None when there are none yet. Revisions are ordered as text; 0000
    is that of TACL 0.1.0, which had a number instead."""
    tables = sa.inspect(db).get_table_names()
    if VERSION.name in tables:
        return db.scalar(sa.select(VERSION.c.version_num))
    if META.name not in tables:
        return None
    number = db.scalar(sa.select(META.c.value).where(META.c.name == "schema"))
    return "0000" if number == "4" else f"number {number}"


# Statements that are used all the time are built once, with parameters: building one takes
# SQLAlchemy five times as long as executing it.


def equals_param(*columns: sa.Column[Any]) -> tuple[sa.ColumnElement[bool], ...]:
    """Conditions that columns have the values given as parameters."""
    return tuple(one == sa.bindparam(f"of_{one.name}", type_=one.type) for one in columns)


def in_params(column: sa.Column[Any]) -> sa.ColumnElement[bool]:
    """A condition that a column has any of several values given as one parameter."""
    return column.in_(sa.bindparam(f"of_{column.name}", expanding=True, type_=column.type))


def of(**key: Any) -> dict[str, Any]:
    """Parameters for a statement with such conditions, from values by column name."""
    plain = str | int | float | None
    return {f"of_{n}": v if isinstance(v, plain) else list(v) for n, v in key.items()}


def one(table: sa.Table, **key: Any) -> tuple[sa.ColumnElement[bool], ...]:
    """Conditions that a row of the table has these values."""
    return tuple(table.c[name] == value for name, value in key.items())


@cache
def _reading(column: sa.Column[Any], *names: str) -> sa.Select[Any]:
    return sa.select(column).where(*equals_param(*(column.table.c[name] for name in names)))


def value(db: sa.Connection, column: sa.Column[Any], **key: Any) -> Any:
    """The column's value in the row that has these values; None if there is no such row."""
    return db.scalar(_reading(column, *key), of(**key))


def exists(db: sa.Connection, table: sa.Table, **key: Any) -> bool:
    """Whether a row of the table has these values."""
    return value(db, next(iter(table.primary_key)), **key) is not None


@cache
def _changing(table: sa.Table, *names: str) -> sa.Update:
    return table.update().where(*equals_param(*(table.c[name] for name in names)))


def change(db: sa.Connection, table: sa.Table, key: Mapping[str, Any], **values: Any) -> bool:
    """Set values in the rows that have the values of the key; returns whether there was one."""
    return bool(db.execute(_changing(table, *key), of(**key) | values).rowcount)


@cache
def _adding(table: sa.Table) -> sa.Insert:
    return table.insert()


def put(db: sa.Connection, table: sa.Table, **row: Any) -> None:
    """Add a row; the time in its column `created` or `at` is now."""
    times = {name: time.time() for name in ("created", "at") if name in table.c}
    db.execute(_adding(table), times | row)


def insert_once(db: sa.Connection, table: sa.Table, **row: Any) -> bool:
    """Add a row unless there is one with this primary key; returns whether it was added."""
    new = not exists(db, table, **{key.name: row[key.name] for key in table.primary_key})
    if new:
        put(db, table, **row)
    return new


def upsert(db: sa.Connection, table: sa.Table, key: Mapping[str, Any], **values: Any) -> None:
    """Set values in the row with this primary key; adds it if there is none."""
    if not change(db, table, key, **values):
        put(db, table, **key, **values)


def chunks(names: Iterable[str]) -> Iterator[list[str]]:
    """Split names into lists that are short enough for one statement."""
    left = list(names)
    return (left[start : start + NAMED] for start in range(0, len(left), NAMED))
