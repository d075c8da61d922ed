"""The application: routes, errors as answers, limits, and one log line for every request."""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import time
import uuid
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import tacl
from cluster import tracing
from cluster.api import (
    arrow,
    compositions,
    embeddings,
    events,
    health,
    inference,
    metrics,
    page,
    predict,
    tasks,
    users,
)
from cluster.api.access import Caller, OnlyHere, TokenLookupLimiter
from cluster.api.limits import without_paths
from cluster.api.metrics import Requests
from cluster.api.schemas import Problem
from cluster.api.service import Service
from cluster.api.shared import Shared
from cluster.api.shares import Shares
from cluster.domain.base import each_wrong
from cluster.errors import http_status, name_of
from tacl import errors

LOG = logging.getLogger("tacl.http")
STATUSES = {
    400: "The body cannot be read.",
    401: "No token, or an unknown one.",
    403: "The role does not allow it.",
    404: "Not there, or not to be known of.",
    409: "Contradicts what is there now.",
    408: "The body stopped arriving.",
    410: "Was erased.",
    413: "Too large.",
    429: "One user has or asks too much; Retry-After says when to try again.",
    422: "Cannot be used as given; the message says why.",
    500: "A defect, or work that failed.",
    503: "Overloaded or not running; Retry-After says when to try again.",
    504: "Not within the deadline.",
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem, "description": text} for code, text in STATUSES.items()
}
RETRY = (errors.ClusterNotRunning, errors.Overloaded, errors.StorageUnavailable, errors.TooMany)
FREED = "60"  # Retry-After if the disk is full: by then somebody may have freed some space
# The text of these errors describes the machines behind the server; admins alone are told.
ADMINS_ONLY = {
    errors.StorageUnavailable: "what the server stores cannot be read or written now",
    errors.ClusterNotRunning: "the cluster does not answer now",
}
PRIVATE = ("/v1/", "/v2")  # paths whose answers no cache may keep
SAID = 4000  # characters of an error message at most: it may quote what was sent


def create_app(service: Service, *, open_to_all: bool) -> FastAPI:
    """The application over `service`. `open_to_all`: it requires no tokens; only for a server on
    the loopback interface."""
    app = FastAPI(
        title="TACL",
        version=tacl.__version__,
        description="Tasks become vectors; models are recipes of vectors; models are asked.",
        openapi_url="/v1/openapi.json",
        docs_url=None,  # its page would load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,  # they would lead to whatever host a request names
        responses=PROBLEMS,
    )
    app.state.service, app.state.open = service, open_to_all
    app.state.requests, app.state.readiness = Requests(), Shared(health.KEPT)
    app.state.news = events.News()
    # Routes are matched in this order: the most frequent ones come first.
    for group in (predict, arrow, embeddings, compositions, tasks, events, users, metrics, health):
        app.include_router(group.ROUTER, prefix="/v1")
    for router in (inference.HEALTH, inference.ROUTER):
        app.include_router(router, prefix="/v2")
    app.state.shares, app.state.strangers = Shares(), TokenLookupLimiter()
    if open_to_all:
        app.add_middleware(OnlyHere)
    app.add_middleware(RequestLog)
    app.add_middleware(HeadAsGet)
    app.exception_handler(errors.TaclError)(_refused)
    app.exception_handler(RequestValidationError)(_misread)
    app.exception_handler(HTTPException)(_unrouted)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> RedirectResponse:
        return RedirectResponse("/v1/openapi.json")

    page.serve(app)
    tracing.trace_requests(app)
    return app


class HeadAsGet:
    """ASGI middleware: answers HEAD as GET without the body. A stream ends with its headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            return await self._app(scope, receive, send)
        ending, answered = asyncio.timeout(None), False

        async def told(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                return await send(message)
            if not answered:
                answered = True
                await send({"type": "http.response.body", "body": b""})
            if message.get("more_body"):
                ending.reschedule(0)

        try:
            async with ending:
                await self._app({**scope, "method": "GET"}, receive, told)
        except TimeoutError:
            if not answered:
                raise


class RequestLog:
    """ASGI middleware: gives every request an id, measures its time and logs it in one line."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        request, answered, started = Request(scope), False, time.perf_counter()
        given = request.headers.get("x-request-id")  # set by Ray's proxy, which also returns it
        request.state.request_id = (given or uuid.uuid4().hex)[:64]
        tracing.set_attributes(request_id=request.state.request_id)

        async def told(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                headers = MutableHeaders(scope=message)
                if given is None:
                    headers["x-request-id"] = request.state.request_id
                if scope["path"].startswith(PRIVATE):
                    headers["cache-control"] = "no-store"
                self._log_answered(request, message["status"], time.perf_counter() - started)
            await send(message)

        try:
            await self._app(scope, receive, told)
        except Exception as error:
            if answered:
                raise
            await (await _internal_error(request, error))(scope, receive, told)

    def _log_answered(self, request: Request, status: int, seconds: float) -> None:
        route = getattr(request.scope.get("route"), "path", "none")  # the template: few values
        request.app.state.requests.answered(route, request.method, status, seconds)
        facts = {"request_id": request.state.request_id, "method": request.method, "route": route}
        facts |= {"status": status, "seconds": round(seconds, 4)}
        caller = getattr(request.state, "caller", None)
        facts |= {"user": caller and caller.name}
        LOG.info("answered", extra=facts | {"error": getattr(request.state, "error", None)})


async def _internal_error(request: Request, error: Exception) -> Response:
    if (known := await _known_error(request, error)) is not None:
        return known
    LOG.exception("internal error", extra={"request_id": request.state.request_id})
    return _problem(
        request, 500, "Defect", "internal error; look for this request id in the server's log"
    )


async def _known_error(request: Request, error: BaseException | None) -> JSONResponse | None:
    """The answer to a refusal (by `OnlyHere`, or while a body was read) or to a full disk, after
    which the client should wait before it retries; None for any other error."""
    if isinstance(error, errors.TaclError):
        return await _refused(request, error)
    if not (isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)):
        return None
    why = (
        f"the server has no room for what was sent: {error.strerror}. Send it again once "
        "whoever runs the server has freed some"
    )
    answer = _problem(request, 503, "StorageUnavailable", why)
    answer.headers["retry-after"] = FREED
    return answer


def _problem(request: Request, status: int, error: str, message: str) -> JSONResponse:
    request.state.error, message = error, without_paths(message[:SAID])
    described = f"{error}: {message}" if request.url.path.startswith("/v2") else error
    body = {"error": described, "message": message}
    return JSONResponse(body | {"request_id": request.state.request_id}, status)


async def _refused(request: Request, error: errors.TaclError) -> JSONResponse:
    answer = _problem(request, http_status(error), name_of(error), _told(request, error))
    if isinstance(error, RETRY):
        answer.headers["retry-after"] = str(getattr(error, "seconds", 1))
    if isinstance(error, errors.NotAuthenticated):
        answer.headers["www-authenticate"] = "Bearer"
    return answer


def _told(request: Request, error: errors.TaclError) -> str:
    """The error's text, or what a caller who is no admin is told instead; then it is logged."""
    caller: Caller | None = getattr(request.state, "caller", None)
    hidden = (text for kind, text in ADMINS_ONLY.items() if isinstance(error, kind))
    text = None if caller and caller.role == "admin" else next(hidden, None)
    if text is None:
        return str(error)
    facts = {"request_id": request.state.request_id, "error": name_of(error), "cause": str(error)}
    LOG.warning("unavailable", extra=facts)
    return f"{text}; try again later. The server's log says why, under this request id"


async def _misread(request: Request, error: RequestValidationError) -> JSONResponse:
    return _problem(request, 422, "BadConfig", each_wrong(error.errors()))


async def _unrouted(request: Request, error: HTTPException) -> JSONResponse:
    if (known := await _known_error(request, error.__cause__)) is not None:
        return known
    kind = {400: "BadConfig", 408: "TooLate"}.get(error.status_code, "NoRoute")
    missing = "the server has no such route; its openapi.json, under v1, lists all"
    detail = missing if error.status_code == 404 else str(error.detail)
    answer = _problem(request, error.status_code, kind, detail)
    answer.headers.update(error.headers or {})
    if error.status_code == 405:
        answer.headers["allow"] = ", ".join(_methods(request))
    return answer


def _methods(request: Request) -> list[str]:
    """All methods of the request's path: Starlette's own answer names those of the first route that
    matched. GET for a path that is not in the schema."""
    paths = request.app.openapi()["paths"].items()
    fits = (of for path, of in paths if re.fullmatch(_HOLE.sub("[^/]+", path), request.url.path))
    found = {method.upper() for of in fits for method in of} or {"GET"}
    return sorted(found | {"HEAD"} if "GET" in found else found)


_HOLE = re.compile(r"\{[^}]+\}")
