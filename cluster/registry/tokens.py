"""Tokens: who may ask over HTTP, and in which role. A token itself is kept nowhere."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from cluster.domain.users import Role
from cluster.registry.database import Database, put
from cluster.registry.journal import Request, log, remember
from cluster.registry.schema import TOKEN


@dataclass(frozen=True)
class Token:
    """`hash` is the sha256 of a token."""

    hash: str
    user: str
    role: Role
    created: float


class Tokens(Database):
    def issue(self, token_hash: str, user: str, role: Role, request: Request) -> None:
        """A further token of a user; their other ones stay."""
        with self._write() as db:
            put(db, TOKEN, hash=token_hash, user=user, role=role)
            log(db, "token", f"issued to {user} as {role}")
            remember(db, request)

    def revoke(self, user: str) -> int:
        """All tokens of a user; how many there were."""
        with self._write() as db:
            count = db.execute(TOKEN.delete().where(TOKEN.c.user == user)).rowcount
            log(db, "token", f"{count} of {user} revoked")
        return count

    def tokens(self, *hashes: str) -> list[Token]:
        """All (those with these hashes), by user, then by time."""
        query = sa.select(TOKEN).order_by(TOKEN.c.user, TOKEN.c.created)
        rows = self._rows(query.where(TOKEN.c.hash.in_(hashes)) if hashes else query)
        return [Token(**row._mapping) for row in rows]
