"""Traces, sent to OTEL_EXPORTER_OTLP_ENDPOINT; if it is not set, nothing is imported or done.

A request over HTTP is one trace, through the operations of the coordinator that it calls. So is a
run, from its acceptance until it ends, in all processes that worked on it; its trace id is derived
from the run's id. Besides ids, spans contain kinds, statuses and names of tasks in URLs; no rows.
"""

from __future__ import annotations

import hashlib
import importlib.metadata as metadata
import os
import threading
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context
from typing import Any

from tacl.errors import BadConfig

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
NEEDED = ("opentelemetry-exporter-otlp-proto-http", "opentelemetry-instrumentation-fastapi")
TIMEOUT = 2.0  # seconds; OpenTelemetry itself retries for ten, whatever its setting


def is_on() -> bool:
    return bool(os.environ.get(ENDPOINT))


def require_installed() -> None:
    """BadConfig if traces are enabled and cannot be sent."""
    try:
        for name in NEEDED if is_on() else ():
            metadata.version(name)
    except metadata.PackageNotFoundError as error:
        raise BadConfig(
            f"{ENDPOINT} is set, and {error.name} is not installed: install the extra tracing "
            f"(docs/how-to/integrations.md), or unset {ENDPOINT}"
        ) from error


def of_run(run_id: str) -> str:
    """The `traceparent` (https://www.w3.org/TR/trace-context) of all spans of a run."""
    name = hashlib.sha256(run_id.encode()).hexdigest()
    return f"00-{name[:32]}-{name[32:48]}-01"


def span(
    name: str, parent: str | None = None, **facts: str | None
) -> AbstractContextManager[object]:
    """A span around a block, below `parent`, a `traceparent`, or below the current span."""
    if not is_on():
        return nullcontext()
    from cluster.tracing import spans

    return spans.span(name, parent, facts)


def record_run(run_id: str, since: float, **facts: str | None) -> None:
    """Record a run that was accepted at `since` (seconds since 1970) and has ended now."""
    if is_on():
        from cluster.tracing import spans

        spans.root(of_run(run_id), since, {"run_id": run_id} | facts)


def inject() -> dict[str, str]:
    """Keyword arguments by which a call to another process continues the trace."""
    if not is_on():
        return {}
    from cluster.tracing import spans

    return spans.carried()


def apart() -> Context:
    """A new context that has only the trace of the current one."""
    found = Context()
    if is_on():
        from opentelemetry import context

        found.run(context.attach, context.get_current())
    return found


def set_attributes(**facts: str | None) -> None:
    """Set attributes of the current span."""
    if is_on():
        from cluster.tracing import spans

        spans.note(facts)


def flush() -> None:
    """Send all spans, before this process may be ended. An endpoint that does not answer, and is
    retried, delays the result of a run by TIMEOUT at most."""
    if is_on():
        from cluster.tracing import spans

        sending = threading.Thread(target=spans.provider().force_flush, daemon=True)
        sending.start()
        sending.join(TIMEOUT)


def trace_requests(app: Any) -> None:
    """Trace the requests of a FastAPI application."""
    if is_on():
        from cluster.tracing import spans

        spans.trace_requests(app)
