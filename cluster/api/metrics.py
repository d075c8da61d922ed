"""Metrics for Prometheus: requests are counted here, other figures fetched at each scrape.

docs/metrics.md lists the names. No label names a task or a user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from cluster.api.access import ADMINS, Guarded
from cluster.api.dependencies import ReadRequest
from cluster.domain.api import CoordinatorAPI
from cluster.domain.figures import CoordinatorFigures, PredictorFigures, StoreFigures
from tacl.errors import TaclError

F = TypeVar("F")
SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
TIMEOUT = 5.0  # seconds for a part to answer; Prometheus gives up after ten
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
ROUTER = APIRouter(route_class=Guarded, tags=["service"])


class Requests:
    """Counts and times of the HTTP requests that this process answered. Each process has its own
    `ingress` label, since a scrape reaches only one of them."""

    def __init__(self) -> None:
        self._kept = CollectorRegistry()
        self._own = uuid4().hex[:8]
        labels = ("ingress", "route", "method", "status")
        self._count = Counter("tacl_http_requests", "Requests.", labels, registry=self._kept)
        self._seconds = Histogram(
            "tacl_http_seconds",
            "Time to an answer.",
            labels[:3],
            registry=self._kept,
            buckets=SECONDS,
        )

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        method = method if method in METHODS else "other"  # clients may invent any number of them
        self._count.labels(self._own, route, method, f"{status // 100}xx").inc()
        self._seconds.labels(self._own, route, method).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self._kept)


TEXT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}}
}


@ROUTER.get("/metrics", openapi_extra=ADMINS, response_model=None, responses=TEXT)
async def metrics(request: Request, asked: ReadRequest) -> PlainTextResponse:
    """Figures in the text format of Prometheus; for an admin's token."""
    service = asked.service
    parts = {
        "coordinator": _scraped(service.ask(CoordinatorAPI.figures), _of_coordinator),
        "predictors": _scraped(service.predictors(), _of_predictors),
        "store": _scraped(service.stored(), _of_store),
    }
    told = dict(zip(parts, await asyncio.gather(*parts.values()), strict=True))
    up = GaugeMetricFamily("tacl_up", "1: this part answered.", labels=("part",))
    for name, (answers, _) in told.items():
        up.add_metric((name,), answers)
    every = [up, *(metric for _, found in told.values() for metric in found)]
    requests: Requests = request.app.state.requests
    return PlainTextResponse(requests.text() + text_of(every))


async def _scraped(
    part: Awaitable[F], of: Callable[[F], Iterable[Metric]]
) -> tuple[bool, Sequence[Metric]]:
    """Whether a part answers, and its metrics; never raises, since the metrics of the other parts
    help to find out why one fails. An empty list of predictors counts as no answer."""
    try:
        async with asyncio.timeout(TIMEOUT):
            found = await part
            return bool(found), list(of(found))
    except (TaclError, TimeoutError):
        return False, ()


def text_of(found: Iterable[Metric]) -> bytes:
    class Collected(Collector):
        def collect(self) -> Iterable[Metric]:
            return found

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collected())
    return generate_latest(registry)


def _of_coordinator(found: CoordinatorFigures) -> Iterator[Metric]:
    runs = GaugeMetricFamily("tacl_runs", "Runs that are owed or failed.", labels=("kind", "state"))
    for one in found.runs:
        runs.add_metric((one.kind, one.state), one.runs)
    yield runs
    yield GaugeMetricFamily("tacl_trouble", "1: something is tried again.", found.trouble)
    yield CounterMetricFamily("tacl_training_steps", "Optimizer steps.", found.steps)
    told = {"lock_wait": found.lock, "registry_read": found.reads, "registry_write": found.writes}
    for name, spent in told.items():
        yield CounterMetricFamily(f"tacl_{name}s", f"Times: {name}.", spent.times)
        yield CounterMetricFamily(f"tacl_{name}_seconds", f"Time: {name}.", spent.seconds)


def _of_predictors(found: Sequence[PredictorFigures]) -> Iterator[Metric]:
    yield GaugeMetricFamily("tacl_predictors", "Predictors that answer.", len(found))
    counted = (CounterMetricFamily, "predict", ("passes", "questions", "hits", "misses"))
    held = (GaugeMetricFamily, "predictor", ("vectors", "models", "bytes"))
    for form, about, names in (counted, held):
        for name in names:
            family = form(f"tacl_{about}_{name}", f"{name}.", labels=("predictor",))
            for one in found:
                family.add_metric((one.predictor,), getattr(one, name))
            yield family


def _of_store(found: StoreFigures) -> Iterator[Metric]:
    yield GaugeMetricFamily("tacl_blobs", "Files of the blob store.", found.blobs)
    yield GaugeMetricFamily("tacl_blob_bytes", "Their bytes.", found.bytes)
