"""What was answered, so that it is answered the same again; and what happened."""

from __future__ import annotations

import time
from dataclasses import dataclass

import sqlalchemy as sa

from cluster.domain.status import Event
from cluster.registry.database import Database
from cluster.registry.schema import EVENT, REQUEST
from tacl.errors import NameTaken


@dataclass(frozen=True)
class Request:
    """A client's id for what it asked, a digest of that, and the answer it gets every time."""

    request_id: str
    asked: str
    answer: str


class Journal(Database):
    """Requests and events."""

    def answer(self, request_id: str, asked: str) -> str | None:
        """The answer already given. NameTaken when the id was used to ask something else."""
        with self._read() as db:
            row = db.execute(sa.select(REQUEST).where(REQUEST.c.request_id == request_id)).first()
        if row is not None and row.asked != asked:
            raise NameTaken(f"request id {request_id} was used to ask something else; use a new id")
        return None if row is None else row.answer

    def events(self, task: str) -> list[Event]:
        """Oldest first."""
        columns = (EVENT.c.at, EVENT.c.kind, EVENT.c.task, EVENT.c.run_id, EVENT.c.text)
        query = sa.select(*columns).where(EVENT.c.task == task).order_by(EVENT.c.number)
        with self._read() as db:
            return [Event(**row._mapping) for row in db.execute(query)]


def remember(db: sa.Connection, request: Request) -> None:
    db.execute(REQUEST.insert().values(vars(request)))


def log(
    db: sa.Connection, kind: str, text: str, task: str | None = None, run_id: str | None = None
) -> None:
    row = {"at": time.time(), "kind": kind, "task": task, "run_id": run_id, "text": text}
    db.execute(EVENT.insert().values(row))
