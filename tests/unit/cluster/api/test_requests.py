"""What holds for every request: how many may change something, methods, caches, foreign pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

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
