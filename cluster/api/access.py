"""Callers and what they may do: bearer tokens, three roles, and ownership of objects.

A token is stored as its sha256. An object that a caller must not know of is answered like one that
does not exist.
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
    """The user who sent a request, and their role. An admin sees everything, any other user what
    `cluster.domain.visibility` allows."""

    name: str
    role: Role

    def context(self, key: str | None = None) -> RequestContext:
        """The context of a request under this idempotency key; equal keys of different users do
        not collide."""
        viewer, request_id = self.only, f"{self.name}:{key}" if key else new_id()
        who = {"user": viewer, "limited": viewer is not None, "sender": self.name}
        return RequestContext(**who, request_id=request_id)

    def require(self, role: Role) -> None:
        if ROLES.index(self.role) < ROLES.index(role):
            raise NotAllowed(f"this needs the role {role}; {self.name} has the role {self.role}")

    def user(self, asked: str | None) -> str:
        """The user whose model is meant, by default the caller. Raises UnknownUser for another user
        unless the caller is an admin, whether that user exists or not."""
        if asked in (None, self.name) or self.role == "admin":
            return asked or self.name
        raise UnknownUser(f"there is no user {asked} here")

    def among(self, asked: str | None) -> str | None:
        """The user whose objects are listed; None: everybody's."""
        return self.only if asked is None else self.user(asked)

    @property
    def only(self) -> str | None:
        """The user to whose objects the caller is limited; None for an admin, who sees all."""
        return None if self.role == "admin" else self.name

    def may_know(self, run: RunStatus) -> bool:
        """Whether the caller may know of a run: one of another user's model would reveal that they
        have a model."""
        return self.role == "admin" or run.user in (None, self.name)

    def require_own_name(self, name: str) -> None:
        """Raises BadName for a name in another user's namespace: a collision would reveal which
        names, also of private tasks, others use."""
        if self.role != "admin" and namespace(name) not in ("", self.name):
            raise BadName(f"{name}: a name with a dot begins with your own: {self.name}.NAME")


ANYBODY = Caller("local", "admin")  # if access control is off: one machine, one person


def hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class TokenLookupLimiter:
    """Limits lookups of tokens that were never valid here to `at_once` at a time for each address,
    in turn, so that a flood of made-up tokens does not keep a user's own from being looked up. None
    is refused for that: behind a proxy all users have one address."""

    def __init__(self, at_once: int = 4) -> None:
        self._at_once = at_once
        self._good: set[str] = set()  # hashes of valid tokens: no more than were ever issued
        self._turns = WeakValueDictionary[str, asyncio.Semaphore]()

    def turn(self, token: str, address: str) -> AbstractAsyncContextManager[None]:
        if token in self._good:
            return nullcontext()
        return self._turns.setdefault(address, asyncio.Semaphore(self._at_once))

    def knows(self, token: str) -> None:
        self._good.add(token)


async def caller_of(request: Request) -> Caller:
    """The caller, from a fresh lookup of the request's token. Raises NotAuthenticated."""
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
    """A route that, before it reads any of the body, checks that no foreign page sent it, and that
    the caller is authenticated, has the role and has not too many requests under way. The role is
    `x-role` in the OpenAPI, by default `user`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        role: Role = (self.openapi_extra or {}).get("x-role", "user")

        async def guarded(request: Request) -> Response:
            require_same_site(request)
            request.state.caller = caller = await caller_of(request)
            caller.require(role)
            with shares_of(request).requests.held(caller.name):
                bounded = BoundedRequest(request, caller.only)
                try:
                    return await answer(bounded)
                finally:
                    bounded.free()

        return guarded


def require_same_site(request: Request) -> None:
    """Raises NotAllowed if a browser says that a page of another site sends more than a GET."""
    if request.method != "GET" and "cross-site" in request.headers.getlist("sec-fetch-site"):
        raise NotAllowed("a page of another site sent this; ask from the page of this server")


SUBMITTERS = {"x-role": "submitter"}  # `openapi_extra` of a route
ADMINS = {"x-role": "admin"}


class OnlyHere:
    """ASGI middleware of a server without tokens: refuses requests of foreign web pages, whether
    they show in Origin or in Host (a name of theirs that resolves to this machine)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            require_here(headers.get("host", ""), headers.getlist("origin"))
        await self._app(scope, receive, send)


def require_here(host: str, origins: Sequence[str]) -> None:
    """Raises NotAllowed unless `host` is on the loopback interface and is also every origin."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:  # such as an unclosed bracket
        name = ""
    if not is_loopback(name):
        raise NotAllowed(
            f"without tokens this server answers to localhost alone, not as {host!r}; ask "
            "http://localhost, or leave access on"
        )
    if any(origin not in (f"http://{host}", f"https://{host}") for origin in origins):
        raise NotAllowed("without tokens only the page of this server may ask; leave access on")
