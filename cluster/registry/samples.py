"""Shards: the unlabelled samples of each task, by version."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from cluster.domain.base import BlobRef
from cluster.domain.tasks import GENERIC, Shard
from cluster.registry.database import Database, one, put_once
from cluster.registry.journal import Request, log, remember
from cluster.registry.schema import SHARD, TASK


class Samples(Database):
    """What is in the store."""

    def grow(self, shard: Shard, request: Request) -> None:
        """A further version of a task's shard; one that is there already stays as it is."""
        with self._write() as db:
            if add_shard(db, shard):
                text = f"version {shard.version} of the samples: {shard.blob.rows} rows"
                log(db, "samples", text, shard.task)
            remember(db, request)

    def state(self, shard: Shard) -> None:
        """The statistics that this version of a task's samples is seen by."""
        with self._write() as db:
            same = one(SHARD, task=shard.task, version=shard.version)
            db.execute(SHARD.update().where(*same).values(statistics=shard.statistics))
            log(db, "samples", "statistics are seen instead of samples", shard.task)

    def shards(self, *tasks: str) -> list[Shard]:
        """Every version (of these tasks), by arrival of the task, then by version; not of tasks
        that were removed, nor of what was cancelled and had the name before."""
        there = sa.and_(TASK.c.name.is_not(None), TASK.c.removed.is_(None))
        query = with_head(sa.select(SHARD)).where(there | (SHARD.c.task == GENERIC))
        query = query.order_by(SHARD.c.ordinal, SHARD.c.version)
        rows = self._rows(query.where(SHARD.c.task.in_(tasks)) if tasks else query)
        return [shard_of(row) for row in rows]

    def shards_with(self, named: Collection[tuple[str, str]]) -> dict[tuple[str, str], Shard]:
        """(task, digest) -> shard, of all these: in one query, because they may be many."""
        query = with_head(sa.select(SHARD)).where(SHARD.c.task.in_({task for task, _ in named}))
        query = query.where(SHARD.c.digest.in_({digest for _, digest in named}))
        rows = self._rows(query.order_by(SHARD.c.version))
        return {(row.task, row.digest): shard_of(row) for row in rows}


def add_shard(db: sa.Connection, shard: Shard) -> bool:
    """Whether it is new."""
    facts = shard.model_dump(include={"task", "version", "ordinal", "statistics"})
    return put_once(db, SHARD, **facts, **shard.blob.model_dump())


def next_version(db: sa.Connection, task: str) -> int:
    """Of a new task's samples: 1, or more where a cancelled one had the name."""
    return 1 + (db.scalar(sa.select(sa.func.max(SHARD.c.version)).where(SHARD.c.task == task)) or 0)


def with_head(shards: sa.Select[Any]) -> sa.Select[Any]:
    """The same query, with what `shard_of` needs of the task; the generic samples are of none, nor
    are those of a cancelled task whose name was given again."""
    return shards.add_columns(TASK.c.head).outerjoin(TASK, is_of_task())


def present(tasks: Collection[str] | None = None) -> sa.Select[Any]:
    """Names of tasks that were not removed (of these: all are many)."""
    query = sa.select(TASK.c.name).where(TASK.c.removed.is_(None))
    return query if tasks is None else query.where(TASK.c.name.in_(tasks))


def is_of_task() -> sa.ColumnElement[bool]:
    """Whether a shard is of the task that has its name now."""
    return sa.and_(TASK.c.name == SHARD.c.task, TASK.c.ordinal == SHARD.c.ordinal)


def shard_of(row: sa.Row) -> Shard:
    return Shard(
        task=row.task,
        ordinal=row.ordinal,
        blob=BlobRef(digest=row.digest, rows=row.rows),
        version=row.version,
        statistics=row.statistics,
        head=row.head or "",
    )
