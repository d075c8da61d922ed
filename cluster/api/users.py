"""Users over HTTP: their usage and tokens. Admins issue and revoke tokens; users replace their own.

The client makes a token and sends only its sha256.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path

from cluster.api.access import ADMINS, Guarded
from cluster.api.compositions import After, UserName, Whose
from cluster.api.dependencies import ReadRequest, WriteRequest
from cluster.api.schemas import NewToken, Successor
from cluster.domain.api import CoordinatorAPI
from cluster.domain.users import Holder, IssuedToken, RevokedTokens, Role, TokenStatus, Usage
from tacl.errors import BadConfig

ROUTER = APIRouter(route_class=Guarded, tags=["users"])
Digits = Annotated[str, Path(pattern="^[0-9a-f]{8}$", examples=["5b0c4d7e"])]


@ROUTER.get("/me")
async def me(asked: ReadRequest) -> Holder:
    """Whose token this is, and its role."""
    return Holder(user=asked.caller.name, role=asked.caller.role)


@ROUTER.get("/tokens")
async def tokens(
    asked: ReadRequest, whose: Whose = None, after: After = ""
) -> Sequence[TokenStatus]:
    """The caller's tokens: role, and when each was made, expires and was last used. An admin sees
    those of everybody, a page at a time."""
    return await asked.service.ask(CoordinatorAPI.tokens, asked.caller.among(whose), after)


@ROUTER.get("/usage")
async def usage(asked: ReadRequest, whose: Whose = None, after: After = "") -> Sequence[Usage]:
    """What the caller uses of the cluster, and the limits of a user who is no admin. An admin sees
    everybody's usage, a page at a time."""
    return await asked.service.ask(CoordinatorAPI.usage, asked.caller.among(whose), after)


@ROUTER.post("/users/{user}/tokens", openapi_extra=ADMINS)
async def issue(user: UserName, body: NewToken, asked: WriteRequest) -> IssuedToken:
    """Issue a token to a user, by the sha256 of a token that the caller made."""
    given = (user, body.role, body.token_hash, body.days)
    return await asked.ask_without_paths(CoordinatorAPI.issue_token, *given)


@ROUTER.delete("/users/{user}/tokens")
async def revoke(user: UserName, asked: WriteRequest) -> RevokedTokens:
    """End all tokens of a user at once: the caller's own or, for an admin, anybody's."""
    return await asked.ask_without_paths(CoordinatorAPI.revoke_tokens, asked.caller.user(user))


@ROUTER.post("/tokens/{token}/rotate")
async def rotate(token: Digits, body: Successor, asked: WriteRequest) -> IssuedToken:
    """Replace a token that the caller sees by a new one of the same role, which must not be above
    the caller's. The old token ends within an hour."""
    if (user := asked.caller.only) is not None:  # an admin may rotate any
        own = await asked.service.ask(CoordinatorAPI.tokens, user)
        seen: list[Role] = [one.role for one in own if one.token == token]
        if not seen:
            raise BadConfig(f"none of your tokens begins with {token}; see /v1/tokens")
        for role in seen:
            asked.caller.require(role)
    return await asked.ask_without_paths(CoordinatorAPI.rotate_token, token, body.token_hash)
