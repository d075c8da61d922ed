"""Whether this process lives, and whether what it needs answers: for whoever restarts or routes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from cluster.api.service import Service
from cluster.domain.api import CoordinatorAPI
from cluster.domain.figures import Readiness
from tacl.errors import TaclError

ROUTER = APIRouter(tags=["service"])
PATIENCE = 2.0  # seconds for a part to answer
KEPT = 1.0  # seconds that what was found holds, however many ask


@ROUTER.get("/health", responses={})
async def health() -> dict[str, str]:
    """This process answers."""
    return {"status": "ok"}


@ROUTER.get("/ready", responses={503: {"model": Readiness}})
async def ready(request: Request) -> Readiness:
    """Whether coordinator, predictors and the reading of uploads answer; 503 when one does not."""
    found = await request.app.state.readiness.found()
    if found.status != "ready":
        return JSONResponse(found.model_dump(), 503)  # pyright: ignore[reportReturnType]
    return found


class LastLook:
    """What was found within the last second; who asks meanwhile shares one look."""

    def __init__(self, service: Service) -> None:
        self._service, self._until = service, 0.0
        self._look: asyncio.Task[Readiness] | None = None

    async def found(self) -> Readiness:
        if self._look is None or (self._look.done() and time.monotonic() > self._until):
            self._look = asyncio.create_task(self._looked())
        return await asyncio.shield(self._look)

    async def _looked(self) -> Readiness:
        coordinator, predictors, uploads = await asyncio.gather(
            _answers(self._service.ask(CoordinatorAPI.cluster)),
            _answers(self._service.predictors()),
            _answers(self._service.reads()),
        )
        self._until = time.monotonic() + KEPT
        parts = {"coordinator": coordinator, "predictors": predictors, "uploads": uploads}
        return Readiness(status="ready" if all(parts.values()) else "unready", **parts)


async def _answers(part: Awaitable[object]) -> bool:
    """With something: no predictor at all is none that answers."""
    try:
        async with asyncio.timeout(PATIENCE):
            return bool(await part)
    except (TaclError, TimeoutError):
        return False
