"""Opening a registry; its readers and writers, also one that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from cluster.domain.tasks import GENERIC
from cluster.registry import Registry
from tacl.errors import BadConfig, BaseMismatch
from tests.support.places import ROOT
from tests.support.registry_scene import BASE, GENERIC_BLOB, accept, publish


def test_a_registry_is_opened_again(registry_url: str) -> None:
    first = Registry(registry_url)
    first.founded(BASE, GENERIC_BLOB)
    accept(first, "a")
    first.close()
    again = Registry(registry_url)
    again.founded(BASE, GENERIC_BLOB)
    assert [task.name for task in again.tasks()] == ["a"]
    assert [shard.task for shard in again.shards()] == [GENERIC, "a"]
    with pytest.raises(BaseMismatch, match="fake:encoder"):
        again.founded(BASE.model_copy(update={"digest": "another"}), GENERIC_BLOB)


@pytest.mark.parametrize("name", ["a?b=c", "feature%2Fx", "100%", "ä # x"])
def test_the_path_of_a_registry_is_taken_as_it_stands(tmp_path: Path, name: str) -> None:
    path = tmp_path / name / "registry.sqlite"
    path.parent.mkdir()
    Registry(f"sqlite:///{path}").close()
    assert path.exists()
    Registry(f"sqlite:///{path}", read_only=True).close()
    assert list(tmp_path.iterdir()) == [path.parent]


def test_a_newer_schema_is_refused(registry_url: str) -> None:
    Registry(registry_url).close()
    with sa.create_engine(registry_url).begin() as db:
        db.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(BadConfig, match="schema 9999.*Use the version"):
        Registry(registry_url)


def test_a_registry_that_is_refused_is_let_go(tmp_path: Path) -> None:
    """A server tries again and again."""
    path = tmp_path / "registry.sqlite"
    with closing(Registry(url := f"sqlite:///{path}")) as registry, registry._write() as db:
        db.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    for read_only in (True, False):
        with pytest.raises(BadConfig, match="schema 9999"):
            Registry(url, read_only)
        assert str(path) not in {file.path for file in psutil.Process().open_files()}


def test_a_commit_of_sqlite_is_on_the_disk(tmp_path: Path) -> None:
    registry = Registry(f"sqlite:///{tmp_path / 'r.sqlite'}")
    with registry._write() as db:
        assert db.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert db.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    with registry._write("relaxed") as db:
        assert db.exec_driver_sql("PRAGMA synchronous").scalar() == 1
    with registry._write() as db:
        assert db.exec_driver_sql("PRAGMA synchronous").scalar() == 2


WRITER = """
import sys
from cluster.registry import Registry
from tests.support.registry_scene import accept, training
registry = Registry(sys.argv[1])
for number in range(10_000):
    accept(registry, f"t{number}")
    print(number, flush=True)
"""


def test_writers_wait_for_each_other(registry: Registry, registry_url: str) -> None:
    other = Registry(registry_url)
    wrote: list[str] = []

    def write_too() -> None:
        with other._write() as db:
            wrote.append(str(db.scalar(sa.text("SELECT value FROM meta WHERE name = 'x'"))))

    with registry._write() as db:
        thread = threading.Thread(target=write_too)
        thread.start()
        time.sleep(0.2)
        assert not wrote
        db.execute(sa.text("INSERT INTO meta (name, value) VALUES ('x', 'seen')"))
    thread.join(10)
    assert wrote == ["seen"]
    other.close()


def test_a_reader_sees_one_moment(registry: Registry) -> None:
    accept(registry, "a")
    with registry._read() as db:
        before = db.scalar(sa.text("SELECT count(*) FROM task"))
        accept(registry, "b")
        assert db.scalar(sa.text("SELECT count(*) FROM task")) == before == 1
    assert len(registry.tasks()) == 2


def test_names_are_ordered_by_their_bytes(registry: Registry) -> None:
    publish(registry, "b", "B", "a_1", "a-2", "a")
    names = [entry.reference.task for entry in registry.vectors()]
    assert names == sorted(names) == ["B", "a", "a-2", "a_1", "b"]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://nobody:secret@127.0.0.1:1/x", "password"),
        ("postgresql://nobody@server:secret@127.0.0.1:1/x", "has a password"),
        ("postgresql://nobody@127.0.0.1:1/x?password=secret", "has a password"),
        ("postgresql://nobody@127.0.0.1:1/x", "cannot be reached"),
        ("postgresql://nobody@127.0.0.1:1/x?sslpassword=secret", "cannot be reached"),  # of before
        ("postgresql://nobody:secret@host:port/x", "no URL"),
        ("postgresql//nobody:secret@host/x", "no URL"),
        ("mysql://host/x", "sqlite or postgresql"),
        ("nonsense", "no URL"),
        ("sqlite:///here.sqlite", "another one in each directory; use sqlite:////PATH or"),
        ("sqlite://", "no absolute path"),  # it would be gone with its process
    ],
)
def test_a_url_that_cannot_be_used(url: str, says: str) -> None:
    with pytest.raises(BadConfig, match=says) as refused:
        Registry(url)
    assert "secret" not in str(refused.value)


def test_a_killed_writer_loses_nothing_that_it_acknowledged(registry_url: str) -> None:
    url = registry_url
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert writer.stdout is not None
    for _ in range(20):
        writer.stdout.readline()
    time.sleep(0.05)  # somewhere in a transaction
    writer.send_signal(signal.SIGKILL)
    acknowledged = 20 + len(writer.stdout.read().splitlines())
    writer.wait()
    registry = Registry(url)
    tasks, runs = registry.tasks(), registry.runs()
    assert acknowledged <= len(tasks) <= acknowledged + 1
    assert len(tasks) == len(runs) == len(registry.shards())
    assert [task.ordinal for task in tasks] == list(range(1, len(tasks) + 1))
