"""Requests about people: tokens are issued, rotated and revoked, and their use is recorded."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial

from cluster.coordinator.handler import Decision, RequestHandler
from cluster.domain.base import RequestContext
from cluster.domain.names import checked_name, did_you_mean
from cluster.domain.users import DAYS, ROLES, IssuedToken, RevokedTokens, Role
from cluster.reading.tokens import OVERLAP, SHOWN, ended
from cluster.registry.tokens import TokenRecord
from tacl.errors import BadConfig, StorageUnavailable, TooMany, UnknownUser

DAY = 86400.0
TOKENS = 100  # live tokens of a user, past which only an admin makes more
HOUR = int(OVERLAP)


class AccountRequests(RequestHandler):
    """Methods of `cluster.domain.api.CoordinatorAPI`."""

    def issue_token(
        self,
        context: RequestContext,
        user: str,
        role: Role,
        token_hash: str,
        days: float | None = None,
    ) -> IssuedToken:
        checked_name(user, "user")
        if role not in ROLES:
            raise BadConfig(f"role {role!r} was asked for; there is {', '.join(ROLES)}")
        if days is not None and not 0 < days <= DAYS:
            raise BadConfig(f"a token lives more than 0 and at most {DAYS} days, not {days:g}")

        def decide() -> Decision[IssuedToken]:
            now = time.time()
            token = TokenRecord(token_hash, user, role, now, now + days * DAY if days else None)
            return Decision(_issued(token), partial(self._registry.issue, token))

        parts = {"user": user, "role": role, "hash": token_hash} | ({"days": days} if days else {})
        return self._once(context, "issue", parts, IssuedToken, decide)

    def rotate_token(self, context: RequestContext, token: str, token_hash: str) -> IssuedToken:
        def decide() -> Decision[IssuedToken]:
            old, now = self._token(context, token), time.time()
            known = self._registry.tokens_of(old.user)
            live = [one for one in known if not ended(one, now)]
            if context.limited and len(live) >= TOKENS:
                raise TooMany(
                    f"{old.user} has {len(live)} tokens; go on when some have ended", HOUR
                )
            new = replaced(_lasting(old, known), token_hash, now)
            ends = min(now + OVERLAP, old.expires or math.inf)
            return Decision(_issued(new), partial(self._registry.rotate, old, ends, new))

        parts = {"token": token, "hash": token_hash}
        return self._once(context, "rotate", parts, IssuedToken, decide)

    def _token(self, context: RequestContext, digits: str) -> TokenRecord:
        """The one live token whose hash starts with `digits`. A limited caller gets only one of
        their own: clients choose the hashes, which may start like anybody's."""
        found = self._registry.tokens_like(digits) if len(digits) >= SHOWN else []
        live = [one for one in found if not ended(one, time.time())]
        if context.limited:
            live = [one for one in live if one.user == context.user]
        if len(live) != 1:
            whose = "of your tokens" if context.limited else "tokens"
            raise BadConfig(f"{len(live)} {whose} begin with {digits!r}; see `tacl users list`")
        return live[0]

    def _note(self, hashes: Sequence[str], now: float) -> None:
        try:
            self._registry.used(hashes, now)
        except StorageUnavailable as error:  # authentication does not depend on it
            self._execution.log_error(error)

    def revoke_tokens(self, context: RequestContext, user: str) -> RevokedTokens:
        def decide() -> Decision[RevokedTokens]:
            if not (count := len(self._registry.tokens_of(user))):
                close = did_you_mean(user, self._registry.holders_like(user))
                raise UnknownUser(f"{user} has no token{close}; see `tacl users list`")
            answer = RevokedTokens(user=user, revoked=count)
            return Decision(answer, partial(self._registry.revoke, user))

        return self._once(context, "revoke", {"user": user}, RevokedTokens, decide)


def replaced(old: TokenRecord, token_hash: str, now: float) -> TokenRecord:
    """A new token with the same role and an equally long life."""
    expires = None if old.expires is None else now + old.expires - old.created
    return TokenRecord(token_hash, old.user, old.role, now, expires)


def _lasting(token: TokenRecord, known: Sequence[TokenRecord]) -> TokenRecord:
    """The token whose life is as long as `token` was issued for: `token` itself or, if a rotation
    shortened its life, its successor."""
    for one in known:
        if one.created > token.created and one.created + OVERLAP == token.expires:
            return _lasting(one, known)
    return token


def _issued(token: TokenRecord) -> IssuedToken:
    return IssuedToken(user=token.user, role=token.role, expires=token.expires)
