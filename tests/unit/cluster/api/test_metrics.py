"""What is measured is what the document names, and the dashboard asks for nothing else."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from cluster.client.client import Client
from cluster.domain.base import RequestContext
from cluster.domain.figures import PredictorFigures, StoreFigures
from tacl.errors import ClusterNotRunning
from tests.support.api_scene import Local, headers, scene
from tests.support.places import ROOT

DEPLOY = ROOT / "cluster" / "deploy"
NAME = re.compile(r"tacl_[a-z_]+")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[TestClient, Local]]:
    app, service = scene(tmp_path / "home", root="admin", ann="submitter")
    with TestClient(app, base_url="http://localhost") as http:
        yield http, service


def scraped(http: TestClient) -> dict[tuple[str, ...], float]:
    """Values by name and the values of the labels, in the order of their names, but for the name
    that this process made up."""
    answer = http.get("/v1/metrics", headers=headers("root"))
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (
            sample.name,
            *(v for name, v in sorted(sample.labels.items()) if name != "ingress"),
        ): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_what_happened_is_counted(served: tuple[TestClient, Local]) -> None:
    http, service = served
    http.get("/v1/tasks/absent", headers=headers("ann"))
    before = scraped(http)
    assert before["tacl_http_requests_total", "GET", "/tasks/{name}", "4xx"] == 1
    assert before["tacl_predict_questions_total", "p1"] == 5
    assert before["tacl_predict_hits_total", "p1"] == 7
    assert (before["tacl_predictors",], before["tacl_blob_bytes",]) == (1, 300)
    assert before["tacl_trouble",] == 0
    service.coordinator.status(RequestContext())
    after = scraped(http)
    for name in ("registry_reads", "registry_read_seconds", "lock_waits", "lock_wait_seconds"):
        assert after[f"tacl_{name}_total",] > before[f"tacl_{name}_total",], name


def test_what_does_not_answer_hides_nothing_else(
    served: tuple[TestClient, Local], monkeypatch: pytest.MonkeyPatch
) -> None:
    http, service = served

    def away() -> None:
        raise ClusterNotRunning("the coordinator does not answer now")

    async def listing() -> StoreFigures:
        await asyncio.sleep(60)
        return StoreFigures(blobs=3, bytes=300)

    monkeypatch.setattr("cluster.api.metrics.TIMEOUT", 0.05)
    monkeypatch.setattr(service.coordinator, "figures", away)
    monkeypatch.setattr(service, "stored", listing)
    found = scraped(http)
    up = {part: found["tacl_up", part] for part in ("coordinator", "predictors", "store")}
    assert up == {"coordinator": 0, "predictors": 1, "store": 0}
    assert found["tacl_predictors",] == 1
    assert not {("tacl_trouble",), ("tacl_blobs",)} & found.keys()

    async def none() -> list[PredictorFigures]:
        return []

    monkeypatch.setattr(service, "predictors", none)
    found = scraped(http)
    assert (found["tacl_up", "predictors"], found["tacl_predictors",]) == (0, 0)


def test_strangers_add_few_names(served: tuple[TestClient, Local]) -> None:
    """Whatever they invent, what is kept of it stays small."""
    http = served[0]
    for number in range(20):
        http.request(f"INVENTED{number}", f"/v1/nowhere/{number}")
    requests = [key for key in scraped(http) if key[0] == "tacl_http_requests_total"]
    assert requests == [("tacl_http_requests_total", "other", "none", "4xx")]


def test_only_an_admin_is_told(served: tuple[TestClient, Local]) -> None:
    assert served[0].get("/v1/metrics").status_code == 401
    assert served[0].get("/v1/metrics", headers=headers("ann")).status_code == 403


def test_document_and_dashboard_name_what_there_is(served: tuple[TestClient, Local]) -> None:
    http, service = served
    service.launcher.broken = {"faces"}
    data = [{"text": f"{row}", "label": row % 2} for row in range(40)]
    Client(service.home, coordinator=service.coordinator).submit("faces", data)
    http.get("/v1/status", headers=headers("ann"))
    there = {name for name, *_ in scraped(http)}
    families = {name.removesuffix("_bucket").removesuffix("_sum") for name in there}
    families = {name.removesuffix("_count") for name in families}
    assert set(NAME.findall((ROOT / "docs" / "metrics.md").read_text())) == families
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    asked = {name for panel in panels for target in panel["targets"]
             for name in NAME.findall(target["expr"])}  # fmt: skip
    assert len(asked) > 10
    assert asked <= there
