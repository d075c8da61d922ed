"""What every route needs: who asks, and the service, with answers that tell no path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Concatenate, ParamSpec, TypeVar

from fastapi import Depends, Header, Request

from cluster.api.access import Asking, Caller
from cluster.api.limits import without_paths
from cluster.api.service import Service
from cluster.domain.api import CoordinatorAPI
from cluster.domain.base import RequestContext

P = ParamSpec("P")
R = TypeVar("R")
Method = Callable[Concatenate[CoordinatorAPI, RequestContext, P], R]


async def _service(request: Request) -> Service:  # no `def`: FastAPI would start a thread
    return request.app.state.service


Cluster = Annotated[Service, Depends(_service)]
Key = Annotated[
    str | None,
    Header(
        alias="idempotency-key",
        max_length=100,
        description="The same key gives the same answer; nothing is done twice.",
    ),
]


@dataclass(frozen=True)
class Asked:
    """A request: who sent it, under which idempotency key, and the service that answers."""

    caller: Caller
    service: Service
    key: str | None = None

    @property
    def context(self) -> RequestContext:
        return self.caller.context(self.key)

    async def ask(self, method: Method[P, R], *arguments: P.args, **named: P.kwargs) -> R:
        """The coordinator's answer to the caller."""
        return await self.service.ask(method, self.context, *arguments, **named)

    async def tell(self, method: Method[P, R], *arguments: P.args, **named: P.kwargs) -> R:
        """The same, without paths of the server."""
        return without_paths(await self.ask(method, *arguments, **named))


async def _look(caller: Asking, service: Cluster) -> Asked:
    return Asked(caller, service)


async def _act(caller: Asking, service: Cluster, key: Key = None) -> Asked:
    return Asked(caller, service, key)


Look = Annotated[Asked, Depends(_look)]  # of a route that only reads
Act = Annotated[Asked, Depends(_act)]
