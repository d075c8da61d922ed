"""Aliases: names of a task that point to one of its versions, moved by compare and swap."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from cluster.domain.reports import AliasChange
from cluster.domain.tasks import ANY, CHAMPION
from cluster.registry.database import (
    Database,
    Request,
    equals_param,
    in_params,
    of,
    put,
    upsert,
    value,
)
from cluster.registry.journal import ALL, log
from cluster.registry.schema import ALIAS, MOVE
from tacl.errors import AliasMoved

_ALIASES = sa.select(ALIAS.c.name, ALIAS.c.version).where(*equals_param(ALIAS.c.task))
_NAMED = sa.select(ALIAS).where(in_params(ALIAS.c.task), in_params(ALIAS.c.name))
_MOVES = (
    sa.select(MOVE.c.at, MOVE.c.name, MOVE.c.came_from, MOVE.c.version, MOVE.c.cause)
    .where(*equals_param(MOVE.c.task))
    .order_by(MOVE.c.number)
    .limit(sa.bindparam("most"))
    .offset(sa.bindparam("after"))
)


class AliasTable(Database):
    """Which version a name means now, and what it meant before."""

    def aliases(self, task: str) -> dict[str, int]:
        return {row.name: row.version for row in self._rows(_ALIASES, task=task)}

    def aliases_of(
        self, tasks: Collection[str], names: Collection[str]
    ) -> dict[str, dict[str, int]]:
        """By task, those of these aliases that it has, and their versions; tasks without any are
        left out."""
        found: dict[str, dict[str, int]] = {}
        for row in self._rows(_NAMED, task=tasks, name=names):
            found.setdefault(row.task, {})[row.name] = row.version
        return found

    def move_alias(
        self, task: str, name: str, version: int, expected: int | None, request: Request
    ) -> None:
        """Compare and swap. `expected`: the version that it must have now, None for none yet, ANY
        for whatever it is. Raises AliasMoved when it has another."""
        with self._write(request=request) as db:
            found = value(db, ALIAS.c.version, task=task, name=name)
            if expected not in (ANY, found):
                raise AliasMoved(
                    f"{task}@{name} was expected at {_said(expected)}; it is at {_said(found)}: "
                    "somebody moved it meanwhile. Look again, then repeat."
                )
            if found != version:
                move(db, task, name, found, version, "asked")
                log(db, "alias", f"{name}: {_said(found)} -> v{version}", task)

    def alias_changes(self, task: str, after: int = 0, most: int = ALL) -> list[AliasChange]:
        """Changes of a task's aliases, oldest first: at most `most`, after the first `after`."""
        with self._read() as db:
            rows = db.execute(_MOVES, of(task=task) | {"after": after, "most": most})
            return [AliasChange(**row._mapping) for row in rows]


def is_champion(table: sa.Table) -> sa.ColumnElement[bool]:
    same = sa.and_(ALIAS.c.task == table.c.task, ALIAS.c.version == table.c.version)
    return sa.and_(same, ALIAS.c.name == CHAMPION)


def move(
    db: sa.Connection, task: str, name: str, found: int | None, version: int, cause: str
) -> None:
    """Move an alias from the version `found`, which was read in this transaction."""
    upsert(db, ALIAS, {"task": task, "name": name}, version=version)
    put(db, MOVE, task=task, name=name, came_from=found, version=version, cause=cause)


def _said(version: int | None) -> str:
    return "no version" if version is None else f"v{version}"
