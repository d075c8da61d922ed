"""The registry on a PostgreSQL server: what SQLite has no part in."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import InternalError

from cluster.registry import Registry
from cluster.registry.timeouts import TimeoutConnection
from tacl.errors import HomeInUse
from tests.support.postgres import Server
from tests.support.registry_scene import BASE, GENERIC_BLOB, accept


def test_a_commit_of_postgres_is_on_the_disk(postgres_server: Server) -> None:
    registry = Registry(postgres_server.new_database())
    for write, expected in {"durable": "on", "relaxed": "off"}.items():
        with registry._write(write) as db:
            assert db.exec_driver_sql("SHOW synchronous_commit").scalar() == expected
    with registry._read() as db, pytest.raises(InternalError, match="read-only"):
        db.execute(sa.text("DELETE FROM meta"))
    registry.close()


def test_a_lost_connection_is_made_again(postgres_server: Server) -> None:
    registry = Registry(postgres_server.new_database())
    registry.founded(BASE, GENERIC_BLOB)
    postgres_server.hang_up()
    accept(registry, "a")
    assert [task.name for task in registry.tasks()] == ["a"]
    registry.close()


def test_a_machine_that_went_away_keeps_the_lock_for_half_a_minute(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server looks after a connection that says nothing: idle, then so often, so many times.
    (Of a socket on one machine, as here, it reads 0.)"""
    asked: list[str] = []
    real = TimeoutConnection.execute

    def noted(self: TimeoutConnection, query: Any, *rest: Any, **named: Any) -> Any:
        asked.append(str(query))
        return real(self, query, *rest, **named)

    monkeypatch.setattr(TimeoutConnection, "execute", noted)
    Registry(postgres_server.new_database()).close()
    seconds = dict(re.findall(r"set_config\('tcp_keepalives_(\w+)', '(\d+)'", asked[0]))
    assert int(seconds["idle"]) + int(seconds["interval"]) * int(seconds["count"]) <= 30


def test_one_process_at_a_time_writes_to_postgres(postgres_server: Server) -> None:
    url = postgres_server.new_database()
    first, second, other = Registry(url), Registry(url), Registry(postgres_server.new_database())
    first.acquire_writer()
    other.acquire_writer()
    with pytest.raises(HomeInUse, match="another cluster writes the registry postgresql"):
        second.acquire_writer()
    first.close()
    third, until = Registry(url), time.monotonic() + 10
    while True:
        try:
            third.acquire_writer()
            break
        except HomeInUse:  # the server ends a connection that was closed a moment later
            assert time.monotonic() < until
            time.sleep(0.05)
    for one in (third, other):
        one.close()
