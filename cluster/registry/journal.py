"""Answers to requests, so that a repeated request gets the same one; and events."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

import sqlalchemy as sa

from cluster.domain.status import Event, EventKind
from cluster.registry.database import Database, equals_param, of, put
from cluster.registry.schema import EVENT, REQUEST
from tacl.errors import NameTaken

_ANSWER = sa.select(REQUEST.c.asked, REQUEST.c.answer).where(*equals_param(REQUEST.c.request_id))
_SUBMITTED = EVENT.alias()
_SINCE = (
    sa.select(sa.func.coalesce(sa.func.max(_SUBMITTED.c.number), 0))
    .where(*equals_param(_SUBMITTED.c.task), _SUBMITTED.c.kind == "submitted")
    .scalar_subquery()
)
_EVENTS = (
    sa.select(EVENT.c.at, EVENT.c.kind, EVENT.c.task, EVENT.c.run_id, EVENT.c.text)
    .where(*equals_param(EVENT.c.task), EVENT.c.number >= _SINCE)
    .order_by(EVENT.c.number)
    .limit(sa.bindparam("most"))
    .offset(sa.bindparam("after"))
)
ALL = 2**31 - 1  # more than the rows of a task
_LAST = sa.select(sa.func.max(EVENT.c.number))


class LoggedEvent(NamedTuple):
    """An event, with what it is about."""

    number: int
    kind: EventKind
    task: str | None
    run_id: str | None
    composition: str | None  # that became a user's model


class Journal(Database):
    """Requests and events."""

    def answer(self, request_id: str, asked: str) -> str | None:
        """The answer already given. Raises NameTaken when the id was used for another request."""
        for row in self._rows(_ANSWER, request_id=request_id):
            if row.asked == asked:
                return row.answer
            raise NameTaken(f"request id {request_id} was used to ask something else; use a new id")

    def kept(self, request_id: str) -> str | None:
        """The answer already given under this id, whatever was requested."""
        return next((row.answer for row in self._rows(_ANSWER, request_id=request_id)), None)

    def events(self, task: str, after: int = 0, most: int = ALL) -> list[Event]:
        """Oldest first: at most `most`, after the first `after`. Events of an earlier, cancelled
        task of this name are left out."""
        with self._read() as db:
            rows = db.execute(_EVENTS, of(task=task) | {"after": after, "most": most})
            return [Event(**row._mapping) for row in rows]

    def events_after(self, after: int) -> tuple[int, list[LoggedEvent]]:
        """The number of the last event, and the events after number `after`; none if that is below
        0."""
        with self._read() as db:
            number = db.scalar(_LAST) or 0
            if not 0 <= after < number:  # called for every request, and mostly nothing is new
                return number, []
            columns = [EVENT.c[name] for name in LoggedEvent._fields]
            query = sa.select(*columns).where(EVENT.c.number > after, EVENT.c.number <= number)
            return number, [LoggedEvent(*row) for row in db.execute(query.order_by(EVENT.c.number))]

    def founding(self) -> float | None:
        """When its home was made: no two homes were made at the same time. None before that."""
        query = sa.select(EVENT.c.at).where(EVENT.c.kind == "founded").order_by(EVENT.c.number)
        return next(iter(self._values(query.limit(1))), None)


def log(
    db: sa.Connection,
    kind: EventKind,
    text: str,
    task: str | None = None,
    run_id: str | None = None,
) -> None:
    put(db, EVENT, kind=kind, task=task, run_id=run_id, text=text)


def log_all(
    db: sa.Connection, kind: EventKind, text: str, runs: Iterable[tuple[str, str | None]]
) -> None:
    """Log the same event for several runs, each with its task."""
    same = {"at": time.time(), "kind": kind, "text": text}
    if events := [same | {"run_id": run_id, "task": task} for run_id, task in runs]:
        db.execute(EVENT.insert(), events)
