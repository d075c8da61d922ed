"""Tokens: who may make requests over HTTP, and in which role. A token itself is not stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from cluster.domain.base import PAGE
from cluster.domain.users import Role
from cluster.registry.database import Database, Request, equals_param, in_params, insert_once
from cluster.registry.journal import log
from cluster.registry.schema import TOKEN
from tacl.errors import NameTaken

_TOKENS = sa.select(TOKEN).order_by(TOKEN.c.user, TOKEN.c.created)
_BY_HASH = _TOKENS.where(in_params(TOKEN.c.hash))
_OF_USER = _TOKENS.where(*equals_param(TOKEN.c.user))


@dataclass(frozen=True)
class TokenRecord:
    """`hash` is the sha256 of a token."""

    hash: str
    user: str
    role: Role
    created: float
    expires: float | None = None
    used: float | None = None  # within an hour before its last use


class TokenTable(Database):
    def issue(self, token: TokenRecord, request: Request) -> None:
        """Add a token of a user; their others stay. Raises NameTaken for a token that is known."""
        with self._write(request=request) as db:
            _issue(db, token)

    def rotate(self, old: TokenRecord, ends: float, new: TokenRecord, request: Request) -> None:
        """Put `new` in the place of `old`, which ends at `ends`; delete the user's ended tokens."""
        with self._write(request=request) as db:
            db.execute(
                TOKEN.delete().where(TOKEN.c.user == old.user, TOKEN.c.expires <= new.created)
            )
            db.execute(TOKEN.update().where(TOKEN.c.hash == old.hash).values(expires=ends))
            _issue(db, new)

    def revoke(self, user: str, request: Request) -> None:
        """Delete all tokens of a user."""
        with self._write(request=request) as db:
            count = db.execute(TOKEN.delete().where(TOKEN.c.user == user)).rowcount
            log(db, "token", f"{count} of {user} revoked")

    def used(self, hashes: Sequence[str], at: float) -> None:
        with self._write("relaxed") as db:
            db.execute(TOKEN.update().where(TOKEN.c.hash.in_(hashes)).values(used=at))

    def tokens(self, *hashes: str) -> list[TokenRecord]:
        """The tokens with these hashes."""
        return self._tokens(_BY_HASH, hash=hashes)

    def tokens_like(self, digits: str) -> list[TokenRecord]:
        """The tokens whose hash starts with these digits."""
        like = TOKEN.c.hash >= digits, TOKEN.c.hash < digits + "g"  # after f
        return self._tokens(_TOKENS.where(*like))

    def tokens_of(self, user: str) -> list[TokenRecord]:
        return self._tokens(_OF_USER, user=user)

    def tokens_after(self, user: str) -> list[TokenRecord]:
        """The tokens of the next PAGE users, by user, then by time."""
        users = sa.select(TOKEN.c.user).where(TOKEN.c.user > user).distinct()
        page = users.order_by(TOKEN.c.user).limit(PAGE)
        return self._tokens(_TOKENS.where(TOKEN.c.user.in_(page)))

    def holders_like(self, user: str) -> list[str]:
        """Users with tokens, by name: at most PAGE, from the first character of this name on."""
        query = sa.select(TOKEN.c.user).where(TOKEN.c.user >= user[:1]).distinct()
        return list(self._values(query.order_by(TOKEN.c.user).limit(PAGE)))

    def _tokens(self, query: sa.Select, **key: object) -> list[TokenRecord]:
        return [TokenRecord(**row._mapping) for row in self._rows(query, **key)]


def _issue(db: sa.Connection, token: TokenRecord) -> None:
    if not insert_once(db, TOKEN, **vars(token)):
        raise NameTaken("this token is known already; make another one")
    log(db, "token", f"issued to {token.user} as {token.role}")
