"""The coordinator's part about people: tokens are issued, looked up and revoked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from cluster.coordinator.shell import Decision, Shell
from cluster.domain.base import RequestContext, identity
from cluster.domain.names import checked_name
from cluster.domain.users import ROLES, Holder, IssuedToken, RevokedTokens, Role, TokenStatus
from tacl.errors import BadConfig, NotAuthenticated, TaclError, UnknownUser

T = TypeVar("T")


def answered(found: Sequence[T | TaclError]) -> T:
    """The only one of many answers, or what is raised instead."""
    (one,) = found
    if isinstance(one, TaclError):
        raise one
    return one


class Accounts(Shell):
    """Methods of `cluster.domain.api.CoordinatorAPI`."""

    def issue_token(
        self, context: RequestContext, user: str, role: Role, token_hash: str
    ) -> IssuedToken:
        checked_name(user, "user")
        if role not in ROLES:
            raise BadConfig(f"role {role!r} was asked for; there is {', '.join(ROLES)}")
        answer = IssuedToken(user=user, role=role)
        write = partial(self._registry.issue, token_hash, user, role)
        asked = identity("issue", {"user": user, "role": role, "hash": token_hash})
        return self._once(
            context.request_id, asked, lambda _: answer, lambda: Decision(answer, write)
        )

    def holder(self, token_hash: str) -> Holder:
        return answered(self.holders([token_hash]))

    def holders(self, hashes: Sequence[str]) -> list[Holder | TaclError]:
        """What `holder` answers or raises for each of these."""
        tokens = self._registry.tokens(*hashes)
        found = {one.hash: Holder(user=one.user, role=one.role) for one in tokens}
        unknown = NotAuthenticated("this token is not known; ask for one: `tacl users issue NAME`")
        return [found.get(one, unknown) for one in hashes]

    def tokens(self) -> list[TokenStatus]:
        return [
            TokenStatus(user=t.user, role=t.role, created=t.created, token=t.hash[:8])
            for t in self._registry.tokens()
        ]

    def revoke_tokens(self, user: str) -> RevokedTokens:
        with self._lock:
            count = self._registry.revoke(user)
        if not count:
            raise UnknownUser(f"{user} has no token; see `tacl users list`")
        return RevokedTokens(user=user, revoked=count)
