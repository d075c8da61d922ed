"""What holds for every request: how many may change something, methods, caches, foreign pages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from cluster.api import bodies, page
from cluster.reading.shares import HOUR, WRITES
from tests.support.api_scene import Local, headers, scene
from tests.unit.cluster.api.test_api import PEOPLE, Person


@pytest.fixture
def world(tmp_path: Path) -> tuple[Any, Local]:
    return scene(tmp_path / "home", **PEOPLE)


@pytest.fixture
def people(world: tuple[Any, Local]) -> Iterator[dict[str, Person]]:
    with TestClient(world[0]) as http:
        yield {name: Person(http, name) for name in PEOPLE}


def test_an_hour_has_so_many_changes_for_each_user(people, world) -> None:
    """An admin's too; a request that is repeated under its key is none, and tokens can be ended."""
    writes = world[1].coordinator._writes
    assert writes.most == WRITES
    writes.most = 3
    people["ann"].submit("news")
    people["ann"].get("status")
    for name in ("eve", "root"):
        who = people[name]
        composed = [
            who.post("compositions", {"terms": ["+news"]}, headers={"idempotency-key": key})
            for key in ("a", "a", "b", "c", "d", "a")
        ]
        assert [one.status_code for one in composed] == [200, 200, 200, 200, 429, 200]
        refused = composed[-2]
        assert refused.json()["error"] == "TooMany"
        assert "3 requests that change something an hour" in refused.json()["message"]
        assert 0 < int(refused.headers["retry-after"]) <= HOUR
        assert who.post(f"compositions/{name}/update").status_code == 429
        assert who.get("status").status_code == 200
        ended = who.http.delete(f"/v1/users/{name}/tokens", headers=headers(name))
        assert ended.status_code == 200
    assert people["bob"].post("compositions", {"terms": ["+news"]}).status_code == 200


def test_a_body_that_stops_frees_its_place(world, monkeypatch) -> None:
    monkeypatch.setattr(bodies, "SILENT", 0.02)
    app, told = world[0], list[Any]()
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\n'
    pieces = iter([head, b"text,label"])

    async def receive() -> dict[str, Any]:
        for piece in pieces:
            return {"type": "http.request", "body": piece, "more_body": True}
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        told.append(message)

    async def ask(path: str, kind: str) -> dict[bytes, bytes]:
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b""}
        sent = [(k.encode(), v.encode()) for k, v in headers("ann").items()]
        sent.append((b"content-type", kind.encode()))
        await asyncio.wait_for(app(scope | {"headers": sent}, receive, send), 5)
        assert app.state.shares.requests._held.total() == 0
        assert app.state.shares.bodies._held.total() == 0
        return dict(told[-2]["headers"])

    found = asyncio.run(ask("/v1/tasks", "multipart/form-data; boundary=x"))
    assert (told[-2]["status"], found[b"connection"]) == (408, b"close")
    assert b"nothing of the body arrived for 0.02 s" in told[-1]["body"]
    for path, kind in (
        ("/v1/predict", "application/json"),
        ("/v1/predict/arrow", "application/vnd.apache.arrow.stream"),
    ):
        asyncio.run(ask(path, kind))
        assert told[-2]["status"] == 408


def test_head_is_answered_as_get_without_the_body(people) -> None:
    """Also of the page, of errors and of a stream, which would not end."""
    ann, http = people["ann"], people["ann"].http
    for path in ("/v1/me", "/v1/status", "/v1/health", "/v1/tasks/none", "/", "/page/main.js"):
        got, head = (http.request(how, path, headers=headers("ann")) for how in ("GET", "HEAD"))
        assert (head.status_code, head.content) == (got.status_code, b""), path
        assert head.headers["content-length"] == got.headers["content-length"]
        assert head.headers["content-type"] == got.headers["content-type"]
    stream = http.head("/v1/events", headers=headers("ann"))
    assert (stream.status_code, stream.content) == (200, b"")
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert http.app.state.shares.listeners._held.total() == 0
    assert http.head("/v1/me").status_code == 401
    refused = http.head("/v1/predict", headers=headers("ann"))
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    assert ann.get("me").json()["user"] == "ann"


def test_no_cache_keeps_what_the_api_answers(people) -> None:
    http = people["ann"].http
    for path in ("/v1/me", "/v1/status", "/v1/tasks/none", "/v1/none", "/v2", "/v2/models/ann"):
        for sent in ({}, headers("ann")):
            assert http.get(path, headers=sent).headers["cache-control"] == "no-store", path
    assert people["ann"].submit("news").headers["cache-control"] == "no-store"
    for path in ("/", *(f"/page/{file.name}" for file in page.STATIC.iterdir())):
        kept = http.get(path).headers
        assert (kept["cache-control"], bool(kept["etag"])) == ("no-cache", True)


def test_pages_of_other_sites_change_nothing(people) -> None:
    http, recipe = people["ann"].http, {"terms": ["+news"]}
    people["ann"].submit("news")
    people["ann"].get("status")

    def compose(site: str) -> int:
        sent = headers("ann") | {"sec-fetch-site": site}
        return http.post("/v1/compositions", json=recipe, headers=sent).status_code

    sites = ("same-origin", "same-site", "none", "cross-site")
    assert [compose(site) for site in sites] == [200, 200, 200, 403]
    foreign = headers("ann") | {"sec-fetch-site": "cross-site"}
    alias = "/v1/tasks/news/aliases/champion"
    assert http.delete("/v1/users/ann/tokens", headers=foreign).status_code == 403
    assert http.put(alias, json={"version": 1}, headers=foreign).status_code == 403
    assert http.get("/v1/me", headers=foreign).status_code == 200
