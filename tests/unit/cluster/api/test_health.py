"""Health asks nobody; ready says which part does not answer, and looks once a second."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from cluster.api import health, shared
from tacl.errors import ClusterNotRunning
from tests.support.api_scene import Local, scene


async def absent(*arguments: Any) -> None:
    raise ClusterNotRunning("nobody there")


async def silent(*arguments: Any) -> None:
    await asyncio.sleep(60)


def served(path: Path) -> tuple[TestClient, Local]:
    app, service = scene(path / "home", root="admin")
    return TestClient(app, base_url="http://localhost"), service


def test_health_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    http, service = served(tmp_path)
    for part in ("ask", "predictors", "reads"):
        monkeypatch.setattr(service, part, absent)
    assert http.get("/v1/health").json() == {"status": "ok"}


@pytest.mark.parametrize("how", [absent, silent])
@pytest.mark.parametrize(
    ("method", "part"),
    [("ask", "coordinator"), ("predictors", "predictors"), ("reads", "uploads")],
)
def test_a_part_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, part: str, how: Any
) -> None:
    monkeypatch.setattr(health, "TIMEOUT", 0.2)
    http, service = served(tmp_path)
    monkeypatch.setattr(service, method, how)
    answer = http.get("/v1/ready")
    assert answer.status_code == 503
    parts = {"coordinator": True, "predictors": True, "uploads": True, part: False}
    assert answer.json() == {"status": "unready", **parts}


def test_no_predictor_is_none_that_answers(tmp_path: Path) -> None:
    http, service = served(tmp_path)
    service.answering.clear()
    assert http.get("/v1/ready").json()["predictors"] is False


def test_a_look_is_not_of_the_request_that_began_it() -> None:
    """Ray ends what was asked in the context of a request that is given up."""
    whose = ContextVar("whose", default="nobody's")

    async def look() -> str:
        return whose.get()

    async def story() -> None:
        whose.set("the first one's")
        assert await shared.Shared[str](1.0).ask("ready", look) == "nobody's"

    asyncio.run(story())


def test_what_was_found_holds_for_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    http, service = served(tmp_path)
    with http:
        assert http.get("/v1/ready").json()["status"] == "ready"
        monkeypatch.setattr(service, "ask", absent)
        assert http.get("/v1/ready").status_code == 200
        monkeypatch.setattr(shared.time, "monotonic", lambda: float("inf"))
        assert http.get("/v1/ready").status_code == 503
