"""The coordinator's part about people: tokens are issued, looked up and revoked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args

from cluster.domain.base import identity
from cluster.domain.names import checked_name
from cluster.domain.users import Role
from cluster.registry import Registry, Request
from tacl.errors import BadConfig, NotAuthenticated, TaclError, UnknownUser

T = TypeVar("T")


def answered(found: Sequence[T | TaclError]) -> T:
    """The only one of many answers, or what is raised instead."""
    (one,) = found
    if isinstance(one, TaclError):
        raise one
    return one


class Accounts:
    """Methods of `cluster.coordinator.core.Coordinator`."""

    _registry: Registry
    _lock: threading.RLock
    _answer: Callable[[str, str], str | None]
    _write: Callable[..., None]

    def issue_token(
        self, user: str, role: Role, token_hash: str, request_id: str
    ) -> dict[str, object]:
        """Remember a token of a user by its sha256: {user, role}. Raises BadName, BadConfig."""
        checked_name(user, "user")
        if role not in get_args(Role):
            raise BadConfig(f"role {role!r} was asked for; there is {', '.join(get_args(Role))}")
        asked = identity("issue", {"user": user, "role": role, "hash": token_hash})
        with self._lock:
            if self._answer(request_id, asked) is None:
                request = Request(request_id, asked, user)
                self._write(request, self._registry.issue, token_hash, user, role)
        return {"user": user, "role": role}

    def holder(self, token_hash: str) -> dict[str, str]:
        """Whose token this is: {user, role}. Raises NotAuthenticated."""
        return answered(self.holders([token_hash]))

    def holders(self, hashes: Sequence[str]) -> list[dict[str, str] | TaclError]:
        """What `holder` answers or raises for each of these."""
        found = {one.hash: one for one in self._registry.tokens(*hashes)}
        unknown = NotAuthenticated("this token is not known; ask for one: `tacl users issue NAME`")
        return [
            {"user": found[one].user, "role": found[one].role} if one in found else unknown
            for one in hashes
        ]

    def tokens(self) -> list[dict[str, Any]]:
        """{user, role, created, token: the first characters of its sha256}, by user."""
        return [
            {"user": t.user, "role": t.role, "created": t.created, "token": t.hash[:8]}
            for t in self._registry.tokens()
        ]

    def revoke_tokens(self, user: str) -> dict[str, object]:
        """{user, revoked: how many tokens}. Raises UnknownUser when there was none."""
        with self._lock:
            count = self._registry.revoke(user)
        if not count:
            raise UnknownUser(f"{user} has no token; see `tacl users list`")
        return {"user": user, "revoked": count}
