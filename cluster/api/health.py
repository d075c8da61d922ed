"""Liveness of this process and readiness of its parts, for supervisors and load balancers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from cluster.api.service import Service
from cluster.api.shared import Shared
from cluster.domain.api import CoordinatorAPI
from cluster.domain.figures import Liveness, Readiness
from tacl.errors import TaclError

ROUTER = APIRouter(tags=["service"])
TIMEOUT = 2.0  # seconds for a part to answer
KEPT = 1.0  # seconds for which an answer is reused, however many ask


@ROUTER.get("/health", responses={})
async def health() -> Liveness:
    """This process answers."""
    return Liveness()


@ROUTER.get("/ready", responses={503: {"model": Readiness}})
async def ready(request: Request) -> Readiness:
    """Whether coordinator, predictors and the reading of uploads answer; 503 when one does not."""
    told = await found(request)
    if told.status != "ready":
        return JSONResponse(told.model_dump(), 503)  # pyright: ignore[reportReturnType]
    return told


async def found(request: Request) -> Readiness:
    """The readiness as of at most KEPT seconds ago; concurrent requests share one check."""
    looks: Shared[Readiness] = request.app.state.readiness
    service: Service = request.app.state.service
    return await looks.ask("ready", lambda: _checked(service))


async def _checked(service: Service) -> Readiness:
    coordinator, predictors, uploads = await asyncio.gather(
        _answers(service.ask(CoordinatorAPI.cluster)),
        _answers(service.predictors()),
        _answers(service.reads()),
    )
    parts = {"coordinator": coordinator, "predictors": predictors, "uploads": uploads}
    return Readiness(status="ready" if all(parts.values()) else "unready", **parts)


async def _answers(part: Awaitable[object]) -> bool:
    """Whether a part answers in time, and not with an empty list: that means no predictors."""
    try:
        async with asyncio.timeout(TIMEOUT):
            return bool(await part)
    except (TaclError, TimeoutError):
        return False
