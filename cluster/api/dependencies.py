"""What every route needs: the caller and the service, whose answers reveal no paths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Concatenate

from fastapi import Depends, Header, Request

from cluster.api.access import BEARER, Caller
from cluster.api.limits import without_paths
from cluster.api.service import P, R, Service
from cluster.api.shares import Shares, shares_of
from cluster.domain.api import CoordinatorAPI
from cluster.domain.base import RequestContext

Method = Callable[Concatenate[CoordinatorAPI, RequestContext, P], R]


Key = Annotated[
    str | None,
    Header(
        alias="idempotency-key",
        max_length=100,
        description="Within a week the same key gives the same answer; nothing is done twice.",
    ),
]


@dataclass(frozen=True)
class ApiRequest:
    """A request: its caller, the service that answers, the shares of users, and the idempotency
    key."""

    caller: Caller
    service: Service
    shares: Shares
    key: str | None = None

    @cached_property
    def context(self) -> RequestContext:
        return self.caller.context(self.key)

    async def ask(self, method: Method[P, R], *arguments: P.args, **named: P.kwargs) -> R:
        """Call a method of the coordinator in the name of the caller."""
        return await self.service.ask(method, self.context, *arguments, **named)

    async def ask_without_paths(
        self, method: Method[P, R], *arguments: P.args, **named: P.kwargs
    ) -> R:
        """As `ask`, with the paths of the server shortened in the answer."""
        return without_paths(await self.ask(method, *arguments, **named))


# `async`: FastAPI would run a plain `def` in a thread.
async def _read_request(request: Request, _: Annotated[object, Depends(BEARER)]) -> ApiRequest:
    return ApiRequest(request.state.caller, request.app.state.service, shares_of(request))


ReadRequest = Annotated[ApiRequest, Depends(_read_request)]  # of a guarded route that only reads


async def _write_request(asked: ReadRequest, key: Key = None) -> ApiRequest:
    return replace(asked, key=key)


WriteRequest = Annotated[ApiRequest, Depends(_write_request)]
