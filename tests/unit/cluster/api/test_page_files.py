"""The files of the page, and what browsers are told of them."""

from __future__ import annotations

import re
from pathlib import Path

from fastapi import FastAPI
from fastapi.testclient import TestClient

from cluster.api import page
from cluster.domain.base import PAGE
from cluster.domain.tasks import Options
from jobs.console.progress import PHASES
from tests.support.api_scene import scene


def files() -> TestClient:
    app = FastAPI()
    page.serve(app)
    return TestClient(app)


def test_the_files_and_their_policy() -> None:
    client = files()
    home = client.get("/")
    assert home.headers["content-type"].startswith("text/html")
    policy = home.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for name in ("page/main.js", "page/page.css", "page/icon.svg"):
        found = client.get(f"/{name}")
        assert found.status_code == 200
        assert found.headers["content-security-policy"] == policy
        assert found.headers["x-content-type-options"] == "nosniff"
    assert client.get("/page/__init__.py").status_code == 404
    assert client.get("/page/%2e%2e/__init__.py").status_code == 404
    unchanged = client.get("/page/main.js", headers={"if-none-match": etag(client)})
    assert unchanged.status_code == 304


def test_what_may_be_done_with_a_page_is_said_where_it_is_written_to(tmp_path: Path) -> None:
    client = TestClient(scene(tmp_path / "home")[0])
    for path in ("/", "/page/main.js", "/docs", "/v1/openapi.json"):
        refused = client.post(path)
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD"), path
    assert client.delete("/v1/tasks").headers["allow"] == "GET, HEAD, POST"


def test_the_form_of_a_task_is_what_the_api_asks_for(tmp_path: Path) -> None:
    app, _ = scene(tmp_path / "home")
    form = re.search(r'<form id="submit">.*?</form>', files().get("/").text, re.DOTALL)
    assert form is not None
    fields = set(re.findall(r'<(?:input|textarea) name="(\w+)"', form[0]))
    asked = app.openapi()["components"]["schemas"]["Body_submit_v1_tasks_post"]["properties"]
    assert fields <= asked.keys() | Options.model_fields.keys()
    assert {"input_column", "label_column", "classes", "templates", "private"} <= fields


def test_every_phase_is_said_as_on_the_command_line() -> None:
    told = re.search(r"const PHASES = {.*?};", files().get("/page/tasks.js").text, re.DOTALL)
    assert told is not None
    assert dict(re.findall(r'(\w+): "(.*?)",', told[0])) == {**PHASES}


def test_the_page_knows_how_many_users_come_at_once() -> None:
    assert f"const PAGE = {PAGE};" in files().get("/page/api.js").text


def etag(client: TestClient) -> str:
    return client.get("/page/main.js").headers["etag"]
