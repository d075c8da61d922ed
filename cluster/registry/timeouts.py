"""A connection to PostgreSQL that does not wait for ever: a server may hang, or the way to it; what
it is told of limits (`statement_timeout`) it would not keep then."""

from __future__ import annotations

from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen

T = TypeVar("T")


class TimeoutConnection(psycopg.Connection[Any]):
    """`answer_timeout`: seconds that it waits for each answer. Then OperationalError, and it is
    closed: what came later would be taken for the next answer."""

    answer_timeout: float | None = None  # while it connects the driver itself looks at the time

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        try:
            return super().wait(gen, interval, self.answer_timeout if timeout is None else timeout)
        except psycopg.OperationalError:
            self.close()
            raise
