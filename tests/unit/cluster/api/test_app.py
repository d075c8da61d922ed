"""What the application says of itself, whoever asks, and how every answer is sent."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tacl.errors import ClusterNotRunning, StorageUnavailable, TaclError
from tests.support.api_scene import Local, headers, scene
from tests.unit.cluster.api.test_api import PEOPLE


@pytest.fixture
def world(tmp_path: Path) -> tuple[TestClient, Local]:
    app, service = scene(tmp_path / "home", **PEOPLE)
    return TestClient(app, base_url="http://localhost"), service


@pytest.fixture
def http(world: tuple[TestClient, Local]) -> TestClient:
    return world[0]


@pytest.mark.parametrize("kind", [StorageUnavailable, ClusterNotRunning])
@pytest.mark.parametrize("failing", ["holder", "status"])
def test_of_what_is_behind_the_server_admins_alone_are_told(
    world: tuple[TestClient, Local],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: type[TaclError],
    failing: str,
) -> None:
    http, service = world

    def away(*_: object, **__: object) -> None:
        raise kind("postgresql://db.internal:5432/tacl refuses the connection")

    monkeypatch.setattr(service.coordinator, failing, away)
    seen = set()
    for who in (*PEOPLE, "mallory"):
        with caplog.at_level(logging.WARNING, logger="tacl.http"):
            answer = http.get("/v1/status", headers=headers(who))
        if answer.status_code == 503 and "db.internal" in answer.text:
            seen.add(who)
        elif answer.status_code == 503:
            assert "try again later" in answer.json()["message"]
            facts = vars(caplog.records[-1])
            assert facts["request_id"] == answer.json()["request_id"]
            assert "db.internal" in facts["cause"]
    assert seen == ({"root"} if failing == "status" else set())


def test_nobody_is_led_to_the_host_that_a_request_names(http: TestClient) -> None:
    for path in ("/v1/status/", "/v1/tasks/", "/page", "/v2/"):
        answer = http.get(path, headers={"host": "evil.example"}, follow_redirects=False)
        assert answer.status_code == 404, path
        assert "location" not in answer.headers
        assert "no such route; its openapi.json" in answer.json()["message"]
