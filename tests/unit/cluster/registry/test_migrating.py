"""The registry of 0.1.0, in SQLite and as it would lie in PostgreSQL, becomes that of today."""

from __future__ import annotations

import json
import multiprocessing
import resource
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from cluster import failpoints
from cluster.domain.compositions import Composition
from cluster.domain.tasks import GENERIC
from cluster.domain.work import FitWork, asked_by
from cluster.registry import Found, Registry
from cluster.registry.dialects import acquire_writer, engine_of
from cluster.registry.migrating import Migrated, _AnySchema, migrate
from cluster.registry.schema import METADATA, REQUEST, REVISION, RUN, VERSION
from tacl.errors import BadConfig, HomeInUse, StorageUnavailable
from tests.support.fakes import BASE
from tests.support.postgres import Server
from tests.support.released import SCHEMAS, unpacked


def moved(source: str, target: str) -> str:
    """The same tables and rows in another database: those of then, which no code has any more."""
    tables = sa.MetaData()
    writing = engine_of(target).execution_options(write="durable")
    with engine_of(source).connect() as old, writing.begin() as new:
        tables.reflect(old)
        tables.create_all(new)
        for table in tables.sorted_tables:
            rows = [dict(row) for row in old.execute(sa.select(table)).mappings()]
            new.execute(table.insert(), rows) if rows else None
    return target


@pytest.fixture(params=SCHEMAS.items(), ids=list(SCHEMAS))
def old(request: pytest.FixtureRequest, tmp_path: Path, registry_url: str) -> tuple[str, str]:
    """The URL of a released registry, in either database, and its revision."""
    version, revision = request.param
    url = unpacked(tmp_path, version).registry_url
    return url if registry_url.startswith("sqlite") else moved(url, registry_url), revision


def differences(url: str) -> list[object]:
    with engine_of(url).connect() as db:
        context = MigrationContext.configure(db)
        assert context.get_current_revision() == REVISION
        return compare_metadata(context, METADATA)


NEW = {"holds", "ran", "near", "effect"}  # tables of later versions


def rows(url: str) -> dict[str, int]:
    with engine_of(url).connect() as db:
        count = sa.select(sa.func.count())
        there = set(sa.inspect(db).get_table_names()) - NEW
        tables = [table for table in METADATA.sorted_tables if table.name in there]
        return {table.name: db.scalar(count.select_from(table)) or 0 for table in tables}


def test_a_released_registry_gets_the_tables_of_today_and_keeps_its_rows(
    old: tuple[str, str], tmp_path: Path
) -> None:
    url, before = old
    kept = rows(url)
    with pytest.raises(BadConfig, match=f"schema {before}.*tacl doctor --migrate"):
        Registry(url)
    done = migrate(url, tmp_path / "before")
    assert done is not None
    assert (done.before, done.after) == (before, REVISION)
    assert differences(url) == []
    assert rows(url) == kept
    assert migrate(url, tmp_path / "before") is None
    with closing(Registry(url)) as registry:
        assert {token.user for token in registry.tokens_after("")} == {"alice"}
        assert registry.users_of("digits") != []


def test_people_of_before_are_found(old: tuple[str, str], tmp_path: Path) -> None:
    """By the columns and the table that answer what one person asks."""
    url, _ = old
    migrate(url, tmp_path)
    with closing(Registry(url)) as registry:
        for run in registry.runs():
            assert run.user == asked_by(run.work)
            assert run.version == getattr(getattr(run.work, "vector", None), "version", None)
            model = getattr(run.work, "composition", None)
            assert run.model == (model and model.digest)
        for task in registry.tasks(with_removed=True):
            owner = task.submission.owner
            assert owner in registry.users_after("")
            holders = [m.user for m in registry.compositions_after("") if holds(m, task.name)]
            assert registry.users_of(task.name) == holders


def test_what_was_answered_counts_as_answered_now(old: tuple[str, str], tmp_path: Path) -> None:
    url, _ = old
    before = time.time()
    migrate(url, tmp_path)
    with engine_of(url).connect() as db:
        times = db.scalars(sa.select(REQUEST.c.at)).all()
    assert times
    assert all(before <= at <= time.time() for at in times)


def test_what_was_measured_is_kept(old: tuple[str, str], tmp_path: Path) -> None:
    url, _ = old
    with engine_of(url).connect() as db:
        pairs = db.execute(sa.text("SELECT * FROM pair")).mappings().all()
    migrate(url, tmp_path)
    with closing(Registry(url)) as registry:
        there, kept = {GENERIC, *(task.name for task in registry.tasks())}, 0
        for pair in (pair for pair in pairs if pair["on"] in there):
            found = registry.effects(pair["task"], pair["version"])
            same = [one._asdict() for one in found if one.shard_digest == pair["shard_digest"]]
            assert {name: pair[name] for name in Found._fields} in same
            kept += 1
    assert kept > 10


def test_recipes_of_before_are_found_by_the_event_that_made_them_a_model(
    old: tuple[str, str], tmp_path: Path
) -> None:
    url, _ = old
    with engine_of(url).connect() as db:
        said = db.scalars(sa.text("SELECT text FROM event WHERE kind = 'composed'")).all()
        kept = db.scalars(sa.text("SELECT digest FROM composition")).all()
    migrate(url, tmp_path)
    with closing(Registry(url)) as registry:
        found = [model.digest for model in registry.recipes_since(0)]
        assert sorted(found) == sorted(d for d in kept if any(text.endswith(d) for text in said))
        assert found
        assert registry.recipes_since(registry.events_after(-1)[0]) == []


def holds(model: Composition, task: str) -> bool:
    return any(term.vector.task == task for term in model.terms)


def test_a_new_registry_has_the_same_tables(registry_url: str, tmp_path: Path) -> None:
    Registry(registry_url).close()
    assert differences(registry_url) == []
    assert migrate(registry_url, tmp_path) is None


def test_revisions_follow_each_other_and_the_last_is_that_of_the_tables() -> None:
    config = Config()
    config.set_main_option("script_location", "cluster.registry:migrations")
    scripts = ScriptDirectory.from_config(config)
    found = [script.revision for script in scripts.walk_revisions()]
    assert found == [f"{number:04}" for number in range(len(found), 0, -1)]
    assert scripts.get_heads() == [REVISION]


def test_the_file_is_kept_as_it_was(tmp_path: Path) -> None:
    url = unpacked(tmp_path).registry_url
    done = migrate(url, tmp_path / "before")
    assert done is not None
    assert done.snapshot is not None
    assert str(done.snapshot) in str(done)
    assert done.snapshot.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(done.snapshot)) as db:
        assert db.execute("SELECT value FROM meta WHERE name = 'schema'").fetchall() == [("4",)]
        assert db.execute("SELECT count(*) FROM token").fetchall() == [(rows(url)["token"],)]


def test_where_the_file_cannot_be_kept_nothing_is_migrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, folder, keep = unpacked(tmp_path).registry_url, tmp_path / "before", _AnySchema._snapshot

    def on_a_full_disk(*of: Any) -> Path | None:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
        try:
            return keep(*of)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    with monkeypatch.context() as full:
        full.setattr(_AnySchema, "_snapshot", on_a_full_disk)
        with pytest.raises(StorageUnavailable, match="Free some space"):
            migrate(url, folder)
    assert not [*folder.iterdir()]
    assert migrate(url, folder)


def _migrate(url: str, folder: Path, told: Callable[[Migrated | None], object]) -> None:
    told(migrate(url, folder))


def test_of_processes_at_once_one_does_it(old: tuple[str, str], tmp_path: Path) -> None:
    url, _ = old
    spawn = multiprocessing.get_context("spawn")
    told = spawn.SimpleQueue()
    work = (url, tmp_path / "before", told.put)
    processes = [spawn.Process(target=_migrate, args=work) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert [done is not None for done in (told.get() for _ in processes)].count(True) == 1
    assert differences(url) == []


def test_a_process_that_dies_in_it_has_done_nothing(
    old: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, before = old

    def die(what: str) -> None:
        if what == "registry migrate written":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reached", die)
        with pytest.raises(KeyboardInterrupt):
            migrate(url, tmp_path)
    with pytest.raises(BadConfig, match=f"schema {before}"):
        Registry(url)
    assert migrate(url, tmp_path) is not None
    assert differences(url) == []


@pytest.mark.postgres
def test_what_a_cluster_writes_is_not_migrated(tmp_path: Path, postgres_server: Server) -> None:
    url = moved(unpacked(tmp_path).registry_url, postgres_server.new_database())
    with engine_of(url).connect() as writer:
        assert acquire_writer(writer)
        with pytest.raises(HomeInUse, match="another cluster"):
            migrate(url, tmp_path)
        writer.invalidate()  # else the pool keeps it, with its lock
    assert migrate(url, tmp_path) is not None


def test_a_fit_that_is_done_is_kept_and_another_is_asked_for_again(
    registry_url: str, tmp_path: Path
) -> None:
    """Of a registry of a day on which the tasks of a fit lay in its row."""
    Registry(registry_url).close()
    data = {"digest": "rows", "rows": 1}
    vector = {"task": "digits", "version": 0, "digest": "v", "blob": "v", "head_blob": "h"}
    task = {"vector": vector | {"run_id": "r"}, "train": data, "validation": data}
    work = {"base": BASE.model_dump(), "kind": "fit", "owner": "", "tasks": [task]}
    same = {"kind": "fit", "attempt": 1, "deaths": 0, "reached": -1, "created": 1.0}
    with engine_of(registry_url).execution_options(write="durable").begin() as db:
        db.execute(VERSION.update().values(version_num="0008"))
        db.execute(sa.text("DROP INDEX ix_event_fitted"))  # of a later day, as what follows
        db.execute(sa.text("DROP INDEX ix_request_at"))
        db.execute(sa.text("ALTER TABLE request DROP COLUMN at"))
        db.execute(sa.text("ALTER TABLE event DROP COLUMN composition"))
        for number, state in enumerate(("done", "queued", "failed")):
            row = {"number": number, "run_id": state, "state": state}
            row["work"] = json.dumps(work | {"run_id": state})
            db.execute(RUN.insert().values(same | row))
    migrate(registry_url, tmp_path)
    with closing(Registry(registry_url)) as registry:
        (run,) = registry.runs()
        assert (run.run_id, run.state) == ("done", "done")
        assert isinstance(run.work, FitWork)
        assert run.work.listed.rows == 1
