"""Shards: the unlabelled samples of each task, by version."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from cluster.domain.base import BlobRef
from cluster.domain.tasks import GENERIC, Shard
from cluster.registry.database import (
    Database,
    Request,
    equals_param,
    in_params,
    insert_once,
    of,
    one,
)
from cluster.registry.erasure import BlobUse, owe_later
from cluster.registry.journal import log
from cluster.registry.schema import OF_TASK, SHARD, TASK


class SampleTable(Database):
    """What is in the sample store."""

    def grow(self, shard: Shard, given: str, request: Request) -> None:
        """Add a version of a task's shard; one that is there already stays as it is. The blob
        `given`, whose rows it has now, is owed."""
        with self._write(request=request) as db:
            owe_later(db, [(given, BlobUse(shard.task, "samples that were added"))])
            if add_shard(db, shard):
                text = f"version {shard.version} of the samples: {shard.blob.rows} rows"
                log(db, "samples", text, shard.task)

    def state(self, shard: Shard) -> None:
        """Set the statistics that others see instead of this version of a task's samples."""
        with self._write() as db:
            same = one(SHARD, task=shard.task, version=shard.version)
            db.execute(SHARD.update().where(*same).values(statistics=shard.statistics))
            log(db, "samples", "statistics are seen instead of samples", shard.task)

    def shards(self, *tasks: str) -> list[Shard]:
        """Every version (of these tasks), by arrival of the task, then by version. Shards of
        removed tasks, and of a cancelled task that had the name before, are left out."""
        rows = self._rows(_OF_TASKS, task=tasks) if tasks else self._rows(_SHARDS)
        return [shard_of(row) for row in rows]

    def shards_with(self, named: Collection[tuple[str, str]]) -> dict[tuple[str, str], Shard]:
        """(task, digest) -> shard, of all these: in one query, because there may be many."""
        tasks, digests = {task for task, _ in named}, {digest for _, digest in named}
        rows = self._rows(_NAMED, task=tasks, digest=digests)
        return {(row.task, row.digest): shard_of(row) for row in rows}


def add_shard(db: sa.Connection, shard: Shard) -> bool:
    """Add a shard; returns whether it is new."""
    facts = shard.model_dump(include={"task", "version", "ordinal", "statistics"})
    return insert_once(db, SHARD, **facts, **shard.blob.model_dump())


def next_version(db: sa.Connection, task: str) -> int:
    """The first version for a new task's samples: 1, or more if a cancelled task had the name."""
    return 1 + (db.scalar(_NEWEST, of(task=task)) or 0)


def with_head(shards: sa.Select[Any]) -> sa.Select[Any]:
    """The query, with what `shard_of` needs of the task. The generic samples are of no task, nor
    are those of a cancelled task whose name was given again."""
    return shards.add_columns(TASK.c.head).outerjoin(TASK, OF_TASK)


def present(tasks: Collection[str] | None = None) -> sa.Select[Any]:
    """A query of the names of tasks that were not removed, all or among these: all are many."""
    query = sa.select(TASK.c.name).where(TASK.c.removed.is_(None))
    return query if tasks is None else query.where(TASK.c.name.in_(tasks))


_THERE = sa.and_(TASK.c.name.is_not(None), TASK.c.removed.is_(None))
_SHARDS = (
    with_head(sa.select(SHARD))
    .where(_THERE | (SHARD.c.task == GENERIC))
    .order_by(SHARD.c.ordinal, SHARD.c.version)
)
_OF_TASKS = _SHARDS.where(in_params(SHARD.c.task))
_NAMED = (
    with_head(sa.select(SHARD))
    .where(in_params(SHARD.c.task), in_params(SHARD.c.digest))
    .order_by(SHARD.c.version)
)
_NEWEST = sa.select(sa.func.max(SHARD.c.version)).where(*equals_param(SHARD.c.task))


def shard_of(row: sa.Row) -> Shard:
    return Shard(
        task=row.task,
        ordinal=row.ordinal,
        blob=BlobRef(digest=row.digest, rows=row.rows),
        version=row.version,
        statistics=row.statistics,
        head=row.head or "",
    )
