"""Server-sent events: what changes is told once, and only what the listener sees."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from cluster.api import events
from cluster.api.access import Caller
from cluster.api.dependencies import Asked
from cluster.domain.base import RequestContext
from tests.support.api_scene import Local
from tests.support.fakes import submission
from tests.support.instant import Instant

EVE = Caller("eve", "user")


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Local:
    monkeypatch.setattr(events, "PERIOD", 0.0)
    return Local(tmp_path / "home")


def told(line: str) -> tuple[str, dict]:
    kind, data, *_ = line.splitlines()
    return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def submit(service: Local, name: str, **more) -> None:
    home = service.coordinator._place
    service.coordinator.submit(RequestContext(), submission(home, name, **more))


def test_every_task_then_every_change(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Instant, "poll", lambda self, handle: None)
    submit(service, "news")

    async def listen() -> list[tuple[str, dict]]:
        asked = Asked(EVE, service)
        lines = events._changes(asked, await events._tasks(asked))
        heard = [told(await anext(lines))]
        monkeypatch.undo()
        monkeypatch.setattr(events, "PERIOD", 0.0)
        submit(service, "bob.own", owner="bob", private=True)
        submit(service, "trec")
        heard += [told(await anext(lines)) for _ in range(2)]
        service.coordinator.remove(RequestContext(), "trec", False)
        while heard[-1][0] != "gone":
            heard.append(told(await anext(lines)))
        return heard

    heard = asyncio.run(listen())
    assert heard[0] == ("task", heard[0][1])
    assert (heard[0][1]["name"], heard[0][1]["state"]) == ("news", "training")
    assert ("news", "ready") in [(facts["name"], facts.get("state")) for _, facts in heard]
    assert "trec" in [facts["name"] for _, facts in heard]
    assert heard[-1] == ("gone", {"name": "trec"})
    assert "bob" not in json.dumps(heard)


def test_silence_is_broken(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PERIOD", 0.01)
    monkeypatch.setattr(events, "ALIVE", 0.02)

    async def listen() -> str:
        return await anext(events._changes(Asked(EVE, service), {}))

    assert asyncio.run(listen()).startswith(":")
