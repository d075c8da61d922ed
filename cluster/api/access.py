"""Who asks, and what they may do: bearer tokens, three roles, and objects that are owned.

A token is kept as its sha256. What somebody must not know of is answered as if it were not there.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from cluster.api.service import Service
from cluster.domain.api import CoordinatorAPI
from cluster.domain.base import RequestContext, new_id
from cluster.domain.status import RunStatus
from cluster.domain.users import ROLES, Role
from tacl.errors import BadName, NotAllowed, NotAuthenticated, UnknownUser

BEARER = HTTPBearer(auto_error=False, description="A token of `tacl users issue NAME`.")


@dataclass(frozen=True)
class Caller:
    """Whoever asks. An admin sees everything, everybody else what `cluster.domain.visibility` lets
    them."""

    name: str
    role: Role

    def context(self, key: str | None = None) -> RequestContext:
        """Of a request under this idempotency key; keys of different people never meet."""
        viewer = None if self.role == "admin" else self.name
        return RequestContext(user=viewer, request_id=f"{self.name}:{key}" if key else new_id())

    def require(self, role: Role) -> None:
        if ROLES.index(self.role) < ROLES.index(role):
            raise NotAllowed(f"this needs the role {role}; {self.name} has the role {self.role}")

    def user(self, asked: str | None) -> str:
        """Whose model is meant. Another's is as unknown as one that is not there."""
        if asked in (None, self.name) or self.role == "admin":
            return asked or self.name
        raise UnknownUser(f"there is no user {asked} here")

    def may_know(self, run: RunStatus) -> bool:
        """That a model is evaluated or composed tells that its user has one."""
        return self.role == "admin" or run.user in (None, self.name)

    def require_owner(self, owner: str) -> None:
        """Of a task that the caller sees."""
        self.require("submitter")
        if self.role != "admin" and owner != self.name:
            raise NotAllowed("only the owner of a task, or an admin, may do that")

    def require_own_name(self, name: str, private: bool) -> None:
        """Names of private tasks begin with their owner's, so that none is found by collision."""
        prefix = f"{self.name}."
        if "." in name and not name.startswith(prefix) and self.role != "admin":
            raise BadName(f"{name}: a name with a dot begins with your own: {prefix}...")
        if private and not name.startswith(prefix):
            raise BadName(f"{name}: the name of a private task begins with yours: {prefix}{name}")


ANYBODY = Caller("local", "admin")  # where access is off: one machine, one person


def hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


async def _caller(
    request: Request,
    bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)],
) -> Caller:
    if request.app.state.open:
        return ANYBODY
    if bearer is None:
        raise NotAuthenticated("send a token: `Authorization: Bearer TOKEN`")
    service: Service = request.app.state.service
    found = await service.ask(CoordinatorAPI.holder, hashed(bearer.credentials))
    caller = Caller(found.user, found.role)
    request.state.user = caller.name
    return caller


Asking = Annotated[Caller, Depends(_caller)]
