"""A registry that is opened to be read, beside the process that writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from cluster.registry import Registry, dialects
from tacl.errors import BadConfig, StorageUnavailable
from tests.support.postgres import Server
from tests.support.registry_scene import accept
from tests.support.silent import silent


@pytest.fixture
def read(registry: Registry, registry_url: str) -> Iterator[Registry]:
    found = Registry(registry_url, read_only=True)
    yield found
    found.close()


def test_what_was_committed_is_read(registry: Registry, read: Registry) -> None:
    accept(registry, "a")
    assert read.task_names() == ["a"]


@pytest.mark.parametrize("write", ["durable", "relaxed", ""])
def test_the_database_refuses_it_to_write(read: Registry, registry: Registry, write: str) -> None:
    accept(registry, "a")
    engine = read._engine.execution_options(write=write)
    with pytest.raises(Exception, match="read-?only"), engine.begin() as db:
        db.execute(sa.text("DELETE FROM task"))
    with pytest.raises(Exception, match="read-?only"), read._engine.begin() as db:
        db.execute(sa.text("CREATE TABLE x (y INTEGER)"))
    assert read.task_names() == registry.task_names() == ["a"]


def test_what_is_read_in_a_moment_is_of_one(registry: Registry, read: Registry) -> None:
    accept(registry, "a")
    with read.snapshot():
        assert read.events_after(-1)[0] == read.events_after(0)[0]
        before = read.events_after(-1)
        accept(registry, "b")
        assert read.events_after(-1) == before
        assert read.task_names() == ["a"]
        assert [shard.task for shard in read.shards("b")] == []
    assert read.task_names() == ["a", "b"]


def test_a_registry_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    file = tmp_path / "a ?#%.sqlite"
    url = sa.URL.create("sqlite", database=str(file))
    with pytest.raises(BadConfig, match="cannot be reached"):
        Registry(url.render_as_string(), read_only=True)
    assert not file.exists()
    Registry(url.render_as_string()).close()
    Registry(url.render_as_string(), read_only=True).close()


def test_one_that_is_empty_or_of_another_revision_is_left_as_it_is(registry_url: str) -> None:
    engine = sa.create_engine(registry_url)
    engine.connect().close()  # as the file that another program makes
    with engine.begin() as db:
        db.execute(sa.text("CREATE TABLE x (y INTEGER)"))
    with pytest.raises(BadConfig, match="tacl up"):
        Registry(registry_url, read_only=True)
    Registry(registry_url).close()
    with engine.begin() as db:
        db.execute(sa.text("UPDATE alembic_version SET version_num = '0001'"))
    with pytest.raises(BadConfig, match="schema 0001.*Migrate it"):
        Registry(registry_url, read_only=True)
    with engine.connect() as db:
        assert db.scalar(sa.text("SELECT version_num FROM alembic_version")) == "0001"


@pytest.mark.timeout(20)  # it waited for ever
@pytest.mark.parametrize("lets_in", [False, True])
def test_a_server_that_does_not_answer_cannot_be_reached(
    lets_in: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setattr(dialects, "TIMEOUT", 0.2)
    with silent(lets_in) as url, pytest.raises(BadConfig, match="cannot be reached.*timeout"):
        Registry(url, read_only=True)


@pytest.mark.timeout(60)
def test_who_reads_does_not_wait_for_ever_for_an_answer(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And reads again once there are answers."""
    registry = Registry(url := postgres_server.new_database())
    accept(registry, "a")
    monkeypatch.setattr(dialects, "TIMEOUT", 0.2)
    read = Registry(url, read_only=True)
    with registry._engine.begin() as db:
        db.execute(sa.text("LOCK TABLE task IN ACCESS EXCLUSIVE MODE"))
        for _ in range(2):
            with pytest.raises(StorageUnavailable, match="timeout"):
                read.task_names()
        with pytest.raises(StorageUnavailable), read.snapshot():
            read.task_names()
    assert read.task_names() == ["a"]
    read.close()
    registry.close()


@pytest.mark.timeout(60)
def test_who_writes_does_not_wait_for_ever_for_an_answer(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is still the one that writes once there are answers."""
    other = Registry(url := postgres_server.new_database())
    monkeypatch.setattr(Registry, "answer_timeout", 0.2)
    registry = Registry(url)
    registry.acquire_writer()
    with other._engine.begin() as db:
        db.execute(sa.text("LOCK TABLE meta, task IN ACCESS EXCLUSIVE MODE"))
        with pytest.raises(StorageUnavailable, match="timeout"):
            accept(registry, "a")
        with pytest.raises(StorageUnavailable, match="timeout"):
            registry.check_writer()
    registry.check_writer()
    accept(registry, "b")
    assert registry.task_names() == ["b"]
    registry.close()
    other.close()
