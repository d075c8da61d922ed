"""Spans of OpenTelemetry, sent by a thread over HTTP (OTLP); imported only if traces are on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

UNTRACED = "v1/health,v1/ready,v1/metrics"  # requested all the time, by machines
HEADER = TraceContextTextMapPropagator()
Facts = Mapping[str, str | None]


@cache
def _sending() -> SpanProcessor:
    return BatchSpanProcessor(OTLPSpanExporter())


def _provider(ids: IdGenerator | None = None) -> TracerProvider:
    name = os.environ.get("OTEL_SERVICE_NAME", "tacl")
    found = TracerProvider(
        resource=Resource.create({"service.name": name}),
        id_generator=ids,
        shutdown_on_exit=ids is None,
    )
    found.add_span_processor(_sending())
    return found


@cache
def provider() -> TracerProvider:
    """The provider of this process."""
    return _provider()


def span(name: str, parent: str | None, facts: Facts) -> AbstractContextManager[object]:
    above = HEADER.extract({"traceparent": parent}) if parent else None
    tracer = provider().get_tracer("tacl")
    return tracer.start_as_current_span(name, above, attributes=_attributes(facts))


def root(traceparent: str, since: float, facts: Facts) -> None:
    """Send the span that `traceparent` names, from `since` until now."""
    _, of_trace, of_span, _ = traceparent.split("-")
    tracer = _provider(_Given(int(of_trace, 16), int(of_span, 16))).get_tracer("tacl")
    begun = int(since * 1e9)
    tracer.start_span("run", Context(), attributes=_attributes(facts), start_time=begun).end()


def carried() -> dict[str, str]:
    found: dict[str, str] = {}
    HEADER.inject(found)
    return found


def note(facts: Facts) -> None:
    trace.get_current_span().set_attributes(_attributes(facts))


def trace_requests(app: Any) -> None:
    FastAPIInstrumentor.instrument_app(
        app, tracer_provider=provider(), excluded_urls=UNTRACED, exclude_spans=["receive", "send"]
    )


def _attributes(facts: Facts) -> dict[str, str]:
    return {f"tacl.{name}": value for name, value in facts.items() if value is not None}


class _Given(IdGenerator):
    """The ids of a span that are known before it is made."""

    def __init__(self, of_trace: int, of_span: int) -> None:
        self._trace, self._span = of_trace, of_span

    def generate_trace_id(self) -> int:
        return self._trace

    def generate_span_id(self) -> int:
        return self._span
