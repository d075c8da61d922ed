"""What a collector is told of requests and runs; and that without one nothing is imported."""

from __future__ import annotations

import asyncio
import importlib.metadata as metadata
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi.testclient import TestClient

from cluster import tracing
from cluster.api.app import create_app
from cluster.domain.api import CoordinatorAPI
from cluster.domain.base import RequestContext
from cluster.runtime.process import LearnerProcess
from cluster.runtime.watched import WatchedCoordinator
from cluster.serving import app
from tacl.errors import BadConfig
from tests.support.api_scene import Local
from tests.support.collector import Collector, collecting
from tests.support.fakes import ADMIN, Scene, asks


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as found:
        monkeypatch.setenv(tracing.ENDPOINT, found.endpoint)
        yield found
        from cluster.tracing import spans

        spans.provider().shutdown()
        spans.provider.cache_clear()
        spans._sending.cache_clear()


def watched(coordinator: Any) -> Any:
    """What callers over Ray have."""
    actor = WatchedCoordinator.__new__(WatchedCoordinator)
    actor._coordinator, actor._turn = coordinator, threading.Lock()
    return actor


class Traced(Local):
    """The service as the ingress asks it, without Ray."""

    async def ask(self, method: Any, /, *arguments: Any, **named: Any) -> Any:
        passed = getattr(watched(self.coordinator), method.__name__)
        return passed(*arguments, **named, **tracing.inject())


class Learner(LearnerProcess):
    def _made(self) -> Any:
        class Idle:
            def work(self, work: Any) -> Any:
                return work

        return Idle()


def test_a_run_is_one_trace_from_its_acceptance_to_its_publication(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "cluster.runtime.process.lower_priority", lambda: None
    )  # here others run too
    scene = Scene(tmp_path)
    scene.submit("digits")
    work = scene.process("train").work
    Learner(str(tmp_path), "").work(work)
    scene.finish("train")
    tracing.flush()
    run, of_run = collector.named("run"), tracing.of_run(work.run_id)
    assert of_run == f"00-{run.trace}-{run.id}-01"
    assert run.parent == ""
    assert run.facts == {"tacl.run_id": work.run_id, "tacl.kind": "train", "tacl.task": "digits"}
    for name in ("train", "publish"):
        assert (collector.named(name).trace, collector.named(name).parent) == (run.trace, run.id)
    assert run.seconds >= collector.named("publish").seconds > 0


def test_what_a_run_asks_is_in_its_trace(tmp_path: Path, collector: Collector) -> None:
    class Behind:
        def report_progress(self, run_id: str, progress: object, attempt: int) -> None:
            """Nothing."""

    watched(Behind()).report_progress("abc", None, 1)
    tracing.flush()
    found = collector.named("report_progress")
    assert f"00-{found.trace}-{found.parent}-01" == tracing.of_run("abc")


def test_a_request_is_one_trace_through_the_coordinator(
    tmp_path: Path, collector: Collector
) -> None:
    app = create_app(Traced(tmp_path), open_to_all=True)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        outside = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01", "x-request-id": "asked-1"}
        assert client.get("/v1/status", headers=outside).status_code == 200
        assert client.get("/v1/health").status_code == 200
    tracing.flush()
    (server,) = (one for one in collector.spans if one.name == "GET /v1/status")
    assert (server.trace, server.parent) == ("ab" * 16, "cd" * 8)
    assert server.facts["tacl.request_id"] == "asked-1"
    asked = collector.named("status")
    assert (asked.trace, asked.parent) == (server.trace, server.id)
    assert not [one for one in collector.spans if "health" in one.name]


def test_a_server_asks_in_the_trace_of_the_request(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though in a context apart: Ray ends what was asked in that of a request that is given up."""
    told: list[str] = []

    async def remote(context: RequestContext, traceparent: str = "") -> None:
        told.append(traceparent)

    coordinator = SimpleNamespace(status=SimpleNamespace(remote=remote))
    for name, found in (("coordinator", coordinator), ("log_to", None), ("_listen_as_the_node", 0)):
        monkeypatch.setattr(app, name, lambda *_, found=found: found)

    async def story() -> None:
        served = app.Ingress("/nowhere", cast(Any, None), 1, False)
        with tracing.span("request"):
            await served.ask(CoordinatorAPI.status, ADMIN)
            assert told == [tracing.inject()["traceparent"]]

    asyncio.run(story())


def test_an_operation_names_its_request_and_the_run_that_it_made(
    tmp_path: Path, collector: Collector
) -> None:
    scene = Scene(tmp_path).trained("digits")
    answer = watched(scene.coordinator).refresh(asks("again"), "digits")
    tracing.flush()
    facts = collector.named("refresh").facts
    assert facts == {"tacl.request_id": "again", "tacl.run_id": answer.run_id}


def test_a_collector_that_is_away_holds_up_no_result(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cluster.tracing import spans

    back = threading.Event()
    monkeypatch.setattr(spans.provider(), "force_flush", lambda: back.wait(5))
    monkeypatch.setattr(tracing, "TIMEOUT", 0.1)
    began = time.monotonic()
    tracing.flush()
    assert time.monotonic() - began < 4
    back.set()


def test_without_an_endpoint_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(tracing.ENDPOINT, raising=False)
    code = (
        "import sys; from cluster import tracing; from cluster.runtime import watched\n"
        "with tracing.span('a', tracing.of_run('b')): tracing.set_attributes(c='d')\n"
        "tracing.record_run('b', 0.0); tracing.flush(); tracing.trace_requests(None)\n"
        "assert tracing.inject() == {}; tracing.require_installed()\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_endpoint_without_its_packages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tracing.ENDPOINT, "http://127.0.0.1:4318")
    tracing.require_installed()
    monkeypatch.setattr(tracing, "NEEDED", ("not-there-at-all",))
    with pytest.raises(BadConfig, match=r"not-there-at-all.*the extra tracing"):
        tracing.require_installed()
    assert metadata.version("opentelemetry-sdk")


def test_a_call_without_a_context_is_passed_on(collector: Collector) -> None:
    class Behind:
        def cluster(self) -> str:
            return "room"

        def task(self, context: RequestContext, name: str) -> str:
            return name

    assert watched(Behind()).cluster() == "room"
    assert watched(Behind()).task(ADMIN, name="digits") == "digits"
