"""Traces, where OTEL_EXPORTER_OTLP_ENDPOINT says who takes them; else nothing is imported or done.

A request over HTTP is one trace, through the operations of the coordinator that it asks. So is a
run, from its acceptance until it ends, whichever processes worked on it: the trace of a run has its
id from that of the run. What is said beside ids: kinds, statuses, names of tasks in URLs; no rows.
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
TIMEOUT = 2.0  # seconds; OpenTelemetry itself tries for ten, whatever it is told


def is_on() -> bool:
    return bool(os.environ.get(ENDPOINT))


def require_installed() -> None:
    """BadConfig when traces are wanted and cannot be sent."""
    try:
        for name in NEEDED if is_on() else ():
            metadata.version(name)
    except metadata.PackageNotFoundError as error:
        raise BadConfig(
            f"{ENDPOINT} is set, and {error.name} is not installed: install the extra tracing "
            f"(docs/how-to/integrations.md), or unset {ENDPOINT}"
        ) from error


def of_run(run_id: str) -> str:
    """The `traceparent` (https://www.w3.org/TR/trace-context) below which all of a run is."""
    name = hashlib.sha256(run_id.encode()).hexdigest()
    return f"00-{name[:32]}-{name[32:48]}-01"


def span(
    name: str, parent: str | None = None, **facts: str | None
) -> AbstractContextManager[object]:
    """Around what is done, below `parent`, a `traceparent`, or what this task does already."""
    if not is_on():
        return nullcontext()
    from cluster.tracing import spans

    return spans.span(name, parent, facts)


def record_run(run_id: str, since: float, **facts: str | None) -> None:
    """A run, accepted at `since` (seconds since 1970), has ended now."""
    if is_on():
        from cluster.tracing import spans

        spans.root(of_run(run_id), since, {"run_id": run_id} | facts)


def inject() -> dict[str, str]:
    """What a call to another process takes along, as arguments by name."""
    if not is_on():
        return {}
    from cluster.tracing import spans

    return spans.carried()


def apart() -> Context:
    """A context that has nothing of that of now but its trace."""
    found = Context()
    if is_on():
        from opentelemetry import context

        found.run(context.attach, context.get_current())
    return found


def set_attributes(**facts: str | None) -> None:
    """About what is done now."""
    if is_on():
        from cluster.tracing import spans

        spans.note(facts)


def flush() -> None:
    """Send what there is, before this process may be ended. Who answers nothing, and is tried again
    and again, holds up the result of a run no longer than TIMEOUT."""
    if is_on():
        from cluster.tracing import spans

        sending = threading.Thread(target=spans.provider().force_flush, daemon=True)
        sending.start()
        sending.join(TIMEOUT)


def trace_requests(app: Any) -> None:
    """Of a FastAPI application."""
    if is_on():
        from cluster.tracing import spans

        spans.trace_requests(app)
