"""Every process of a cluster sends its part of a run's trace."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from cluster import tracing
from cluster.runtime.connection import leave
from cluster.runtime.near import coordinator_of
from cluster.storage.home import Home
from tests.integration.test_head import sentences, start_head, until
from tests.support.collector import collecting
from tests.support.fakes import ADMIN, submission


@pytest.mark.ray
def test_a_run_on_ray_is_one_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "home")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")  # milliseconds
    with collecting() as collector:
        monkeypatch.setenv(tracing.ENDPOINT, collector.endpoint)
        head = start_head(home, "--base", "fake:encoder", "--generic", str(sentences(tmp_path)))
        try:
            until(lambda: home.running() or head.poll() is not None, "the head is ready", 120)
            assert home.running(), head.communicate()[0]
            run_id = coordinator_of(home).submit(ADMIN, submission(home, "digits")).run_id
            until(lambda: any(one.name == "run" for one in collector.spans), "it has ended")
        finally:
            leave(home)
            head.send_signal(signal.SIGTERM)
            head.communicate(timeout=120)
    _, of_trace, of_span, _ = tracing.of_run(run_id).split("-")
    below = {one.name for one in collector.spans if (one.trace, one.parent) == (of_trace, of_span)}
    assert below >= {"train", "publish"}
    submitted = collector.named("submit").facts
    assert submitted == {"tacl.request_id": ADMIN.request_id, "tacl.run_id": run_id}
