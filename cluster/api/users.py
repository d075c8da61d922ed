"""Users over HTTP: what they use, and their tokens. An admin issues and revokes, whoever holds one
takes a new one in its place.

Whoever needs a token makes it, and sends its sha256.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path

from cluster.api.access import ADMINS, Asking, Guarded
from cluster.api.compositions import UserName
from cluster.api.dependencies import Cluster, Key, tell
from cluster.api.schemas import NewToken, Successor
from cluster.domain.api import CoordinatorAPI
from cluster.domain.users import Holder, IssuedToken, RevokedTokens, Role, TokenStatus, Usage
from tacl.errors import BadConfig

ROUTER = APIRouter(route_class=Guarded, tags=["users"])
Digits = Annotated[str, Path(pattern="^[0-9a-f]{8}$", examples=["5b0c4d7e"])]


@ROUTER.get("/me")
async def me(caller: Asking) -> Holder:
    """Whose token this is, and its role."""
    return Holder(user=caller.name, role=caller.role)


@ROUTER.get("/tokens")
async def tokens(caller: Asking, service: Cluster) -> Sequence[TokenStatus]:
    """The caller's tokens: role, when each was made, ends, and was last used. An admin sees
    everybody's."""
    found = await tell(service, CoordinatorAPI.tokens)
    return [one for one in found if caller.role == "admin" or one.user == caller.name]


@ROUTER.get("/usage")
async def usage(caller: Asking, service: Cluster) -> Sequence[Usage]:
    """What the caller has of the cluster, and the most that one may have who is no admin. An admin
    sees everybody's."""
    found = await tell(service, CoordinatorAPI.usage)
    return [one for one in found if caller.role == "admin" or one.user == caller.name]


@ROUTER.post("/users/{user}/tokens", openapi_extra=ADMINS)
async def issue(
    user: UserName, body: NewToken, caller: Asking, service: Cluster, key: Key = None
) -> IssuedToken:
    """Let a token be a user's from now on."""
    asked = (caller.context(key), user, body.role, body.token_hash, body.days)
    return await tell(service, CoordinatorAPI.issue_token, *asked)


@ROUTER.delete("/users/{user}/tokens")
async def revoke(
    user: UserName, caller: Asking, service: Cluster, key: Key = None
) -> RevokedTokens:
    """End all tokens of a user, at once: one's own, or as an admin anybody's."""
    asked = (caller.context(key), caller.user(user))
    return await tell(service, CoordinatorAPI.revoke_tokens, *asked)


@ROUTER.post("/tokens/{token}/rotate")
async def rotate(
    token: Digits, body: Successor, caller: Asking, service: Cluster, key: Key = None
) -> IssuedToken:
    """Let a token take the place of one that the caller sees, which ends within an hour. Its role
    is the same, and not above the caller's."""
    seen: list[Role] = [one.role for one in await tokens(caller, service) if one.token == token]
    if not seen:
        raise BadConfig(f"none of your tokens begins with {token}; see /v1/tokens")
    for role in seen:
        caller.require(role)
    asked = (caller.context(key), token, body.token_hash)
    return await tell(service, CoordinatorAPI.rotate_token, *asked)
