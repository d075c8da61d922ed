"""What every route needs: the service, with answers that tell no path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Concatenate, ParamSpec, TypeVar

from fastapi import Depends, Header, Request

from cluster.api.limits import without_paths
from cluster.api.service import Service
from cluster.domain.api import CoordinatorAPI

P = ParamSpec("P")
R = TypeVar("R")


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


async def tell(
    service: Service,
    method: Callable[Concatenate[CoordinatorAPI, P], R],
    *arguments: P.args,
    **named: P.kwargs,
) -> R:
    """The coordinator's answer, without paths of the server."""
    return without_paths(await service.ask(method, *arguments, **named))
