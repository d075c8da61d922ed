"""A connection to PostgreSQL that does not wait for ever: the server, or the network to it, may
hang. Limits that the server enforces (`statement_timeout`) do not help then."""

from __future__ import annotations

from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen

T = TypeVar("T")


class TimeoutConnection(psycopg.Connection[Any]):
    """`answer_timeout`: seconds that it waits for each answer. After that it raises
    OperationalError and is closed: an answer that came later would be taken for the next one."""

    answer_timeout: float | None = None  # connecting has the driver's own timeout

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        try:
            return super().wait(gen, interval, self.answer_timeout if timeout is None else timeout)
        except psycopg.OperationalError:
            self.close()
            raise
