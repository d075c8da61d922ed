"""What every route needs: the service, with answers that tell no path, and ids of requests."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from fastapi import Depends, Header, Request

from cluster.api.access import Caller
from cluster.api.limits import without_paths
from cluster.api.service import Service


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


async def tell(service: Service, method: str, *arguments: object) -> Any:
    """The coordinator's answer, without paths of the server."""
    return without_paths(await service.ask(method, *arguments))


def request_id(caller: Caller, key: str | None) -> str:
    """Ids of different people never meet."""
    return f"{caller.name}:{key}" if key else uuid.uuid4().hex


def without_ordinals(found: Any, caller: Caller) -> Any:
    """Orders of arrival have gaps where there is something that the caller does not see."""
    if caller.role == "admin":
        return found
    if isinstance(found, dict):
        return {k: without_ordinals(v, caller) for k, v in found.items() if k != "ordinal"}
    if isinstance(found, list):
        return [without_ordinals(value, caller) for value in found]
    return found
