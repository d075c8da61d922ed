"""Who asks, and what they may do: bearer tokens, three roles, and objects that are owned.

A token is kept as its sha256. What somebody must not know of is answered as if it were not there.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from fastapi import Request, Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from cluster.api.bodies import BoundedRequest
from cluster.api.service import Service
from cluster.api.shares import shares_of
from cluster.domain.api import CoordinatorAPI
from cluster.domain.base import RequestContext, new_id
from cluster.domain.loopback import is_loopback
from cluster.domain.names import namespace
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
        viewer = self.only
        request_id = f"{self.name}:{key}" if key else new_id()
        return RequestContext(user=viewer, limited=viewer is not None, request_id=request_id)

    def require(self, role: Role) -> None:
        if ROLES.index(self.role) < ROLES.index(role):
            raise NotAllowed(f"this needs the role {role}; {self.name} has the role {self.role}")

    def user(self, asked: str | None) -> str:
        """Whose model is meant. Another's is as unknown as one that is not there."""
        if asked in (None, self.name) or self.role == "admin":
            return asked or self.name
        raise UnknownUser(f"there is no user {asked} here")

    def among(self, asked: str | None) -> str | None:
        """Whose things are listed; None: everybody's."""
        return self.only if asked is None else self.user(asked)

    @property
    def only(self) -> str | None:
        """Whose things alone the caller sees; None for an admin, who sees everybody's."""
        return None if self.role == "admin" else self.name

    def may_know(self, run: RunStatus) -> bool:
        """That a model is evaluated or composed tells that its user has one."""
        return self.role == "admin" or run.user in (None, self.name)

    def require_own_name(self, name: str) -> None:
        """Others' names, private tasks' among them, are not found by collision."""
        if self.role != "admin" and namespace(name) not in ("", self.name):
            raise BadName(f"{name}: a name with a dot begins with your own: {self.name}.NAME")


ANYBODY = Caller("local", "admin")  # where access is off: one machine, one person


def hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class TokenLookupLimiter:
    """Tokens that were never good here are looked up a few at a time for each address, in turn: a
    flood of them keeps nobody's own from being looked up. None is refused for that, since behind a
    proxy all people have one address."""

    def __init__(self, at_once: int = 4) -> None:
        self._at_once = at_once
        self._good: set[str] = set()  # no more than were ever issued
        self._turns = WeakValueDictionary[str, asyncio.Semaphore]()

    def turn(self, token: str, address: str) -> AbstractAsyncContextManager[None]:
        if token in self._good:
            return nullcontext()
        return self._turns.setdefault(address, asyncio.Semaphore(self._at_once))

    def knows(self, token: str) -> None:
        self._good.add(token)


async def caller_of(request: Request) -> Caller:
    """Who asks, as their token says now. Raises NotAuthenticated."""
    if request.app.state.open:
        return ANYBODY
    bearer = await BEARER(request)
    if bearer is None:
        raise NotAuthenticated("send a token: `Authorization: Bearer TOKEN`")
    service: Service = request.app.state.service
    address = request.client.host if request.client else ""
    strangers: TokenLookupLimiter = request.app.state.strangers
    async with strangers.turn(token := hashed(bearer.credentials), address):
        found = await service.ask(CoordinatorAPI.holder, token)
    strangers.knows(token)
    return Caller(found.user, found.role)


class Guarded(APIRoute):
    """A route for callers who are known, have its role and not too much under way: all of it before
    any of the body is read. Its role is `x-role` in the OpenAPI, by default `user`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        role: Role = (self.openapi_extra or {}).get("x-role", "user")

        async def guarded(request: Request) -> Response:
            request.state.caller = caller = await caller_of(request)
            caller.require(role)
            with shares_of(request).requests.held(caller.name):
                bounded = BoundedRequest(request, caller.only)
                try:
                    return await answer(bounded)
                finally:
                    bounded.free()

        return guarded


SUBMITTERS = {"x-role": "submitter"}  # `openapi_extra` of a route
ADMINS = {"x-role": "admin"}


class OnlyHere:
    """ASGI, where no token is asked for: a page of elsewhere asks nothing, neither from its own
    address (Origin) nor under a name of its own that leads to this machine (Host)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            require_here(headers.get("host", ""), headers.getlist("origin"))
        await self._app(scope, receive, send)


def require_here(host: str, origins: Sequence[str]) -> None:
    """Raises NotAllowed."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:  # half a bracket
        name = ""
    if not is_loopback(name):
        raise NotAllowed(
            f"without tokens this server answers to localhost alone, not as {host!r}; ask "
            "http://localhost, or leave access on"
        )
    if any(origin not in (f"http://{host}", f"https://{host}") for origin in origins):
        raise NotAllowed("without tokens only the page of this server may ask; leave access on")
