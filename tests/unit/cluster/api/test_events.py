"""Server-sent events: what changes is told once, and only what the listener sees."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cluster.api import events
from cluster.api.access import Caller
from cluster.api.dependencies import ApiRequest
from cluster.api.shares import Shares
from cluster.coordinator.executor import Execution
from cluster.domain.api import CoordinatorAPI
from cluster.domain.base import PAGE, RequestContext
from cluster.domain.status import Phase
from tacl.errors import ClusterNotRunning, NotAuthenticated
from tests.support.api_scene import Local, headers, scene
from tests.support.fakes import submission
from tests.support.instant import Instant

EVE = Caller("eve", "user")


async def eve() -> Caller:
    return EVE


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
        asked, news = ApiRequest(EVE, service, Shares()), events.News()
        lines = events._lines(asked, news, await news.since(asked), eve)
        heard = [told(await anext(lines))]
        monkeypatch.undo()
        monkeypatch.setattr(events, "PERIOD", 0.0)
        submit(service, "bob.own", owner="bob", private=True)
        submit(service, "trec")
        while "trec" not in [facts.get("name") for _, facts in heard]:
            heard.append(told(await anext(lines)))
        service.coordinator.remove(RequestContext(), "trec", False)
        while heard[-1] != ("gone", {"name": "trec"}):
            heard.append(told(await anext(lines)))
        return heard

    heard = asyncio.run(listen())
    assert heard[0] == ("task", heard[0][1])
    assert (heard[0][1]["name"], heard[0][1]["state"]) == ("news", "training")
    assert ("news", "ready") in [(facts.get("name"), facts.get("state")) for _, facts in heard]
    assert "run" in [kind for kind, _ in heard]  # pairs are measured
    assert "bob" not in json.dumps(heard)


def test_phases_steps_and_troubles_are_told(service: Local) -> None:
    """Whoever has the page open looks again when one is."""
    status = asyncio.run(
        ApiRequest(EVE, service, Shares()).ask_without_paths(CoordinatorAPI.status, "")
    )
    submit(service, "news")
    task = asyncio.run(
        ApiRequest(EVE, service, Shares()).ask_without_paths(CoordinatorAPI.status, "")
    ).tasks[0]
    known, stale = dict[str, str](), set[str]()

    def heard(**changes: Any) -> list[str]:
        found = status.model_copy(update={"whole": False, "more": False} | changes)
        return [told(line)[0] for line in events._changes(found, known, stale)]

    assert heard(tasks=(task,)) == ["task", "cluster"]
    assert heard(tasks=(task,)) == []
    assert heard(tasks=(task.model_copy(update={"phase": Phase.LOADING}),)) == ["task"]
    assert heard(trouble="the disk is full") == ["cluster"]


def test_a_trouble_is_another_version(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    before = service.coordinator.version()
    monkeypatch.setattr(Execution, "trouble", property(lambda self: "the disk is full"))
    assert service.coordinator.version() != before


def test_silence_is_broken(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PERIOD", 0.01)
    monkeypatch.setattr(events, "ALIVE", 0.02)

    async def listen() -> str:
        asked = ApiRequest(EVE, service, Shares())
        lines = events._lines(asked, events.News(), events.NOTHING, eve)
        assert told(await anext(lines)) == ("cluster", {"trouble": False})
        return await anext(lines)

    assert asyncio.run(listen()).startswith(":")


@pytest.mark.parametrize("now", [Caller("eve", "admin"), None])
def test_nothing_is_told_after_the_token_has_ended(service: Local, now: Caller | None) -> None:
    """Or its role was changed."""
    submit(service, "news")
    asked, news, heard = ApiRequest(EVE, service, Shares()), events.News(), list[str]()

    async def known() -> Caller:
        if not heard:
            return EVE
        if now is None:
            raise NotAuthenticated("the token has ended")
        return now

    async def listen() -> None:
        async for line in events._lines(asked, news, await news.since(asked), known):
            heard.append(line)
            submit(service, f"more{len(heard)}")

    asyncio.run(asyncio.wait_for(listen(), 60))
    assert len(heard) == 1 or "more" not in "".join(heard)


def test_what_is_due_is_told_once_it_is_known_who_listens(service: Local) -> None:
    """While nobody can say, that is said."""
    submit(service, "news")
    asked, looks = ApiRequest(EVE, service, Shares()), list[int]()

    async def known() -> Caller:
        looks.append(len(looks))
        if len(looks) == 1:
            raise ClusterNotRunning("away")
        return EVE

    async def listen() -> list[str]:
        news = events.News()
        lines = events._lines(asked, news, await news.since(asked), known)
        return [told(await anext(lines))[0] for _ in range(3)]

    assert asyncio.run(asyncio.wait_for(listen(), 60)) == ["trouble", "task", "cluster"]


def test_after_a_trouble_the_rest_is_told(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more tasks than one answer has."""
    for number in range(PAGE + 2):
        submit(service, f"task{number}")
    ask, troubled = Local.ask, list[str]()

    async def once_away(self: Local, method, *arguments):
        if method.__name__ == "status" and not troubled and arguments[-1]:
            troubled.append("status")
            raise ClusterNotRunning("away")
        return await ask(self, method, *arguments)

    monkeypatch.setattr(Local, "ask", once_away)

    async def listen() -> set[str]:
        asked, news, names = ApiRequest(EVE, service, Shares()), events.News(), set[str]()
        async for line in events._lines(asked, news, await news.since(asked), eve):
            names.add(told(line)[1].get("name", ""))
            if len(names - {""}) == PAGE + 2:
                break
        return names

    asyncio.run(asyncio.wait_for(listen(), 60))
    assert troubled == ["status"]


def test_pages_left_open_ask_nothing_of_their_own(
    service: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One question a period for all of them, and none about tasks while nothing is new."""
    monkeypatch.setattr(events, "PERIOD", 60.0)
    asked: list[str] = []
    ask = Local.ask

    async def counted(self: Local, method, *arguments):
        asked.append(method.__name__)
        return await ask(self, method, *arguments)

    monkeypatch.setattr(Local, "ask", counted)
    callers = [Caller(f"user{number % 3}", "user") for number in range(30)]
    people = [ApiRequest(caller, service, Shares()) for caller in callers]

    async def listen() -> None:
        news = events.News()
        heard = [await news.since(one) for one in people]
        assert all(one.told for one in heard)
        for one, before in zip(people, heard, strict=True):
            assert (await news.since(one, before)).told is None

    asyncio.run(listen())
    assert sorted(asked) == ["status"] * 3 + ["version"]


def test_who_listens_and_sends_a_body_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer has begun: nobody counts what comes then."""
    app, _ = scene(tmp_path / "home", eve="user")
    monkeypatch.setattr(events, "PERIOD", 0.01)
    read = 0

    async def receive() -> dict[str, Any]:
        nonlocal read
        read += 1
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"x" * 1000, "more_body": True}

    async def send(message: Any) -> None: ...

    sent = [(name.encode(), value.encode()) for name, value in headers("eve").items()]
    scope = {"type": "http", "method": "GET", "path": "/v1/events", "query_string": b""}
    asyncio.run(asyncio.wait_for(app(scope | {"headers": sent}, receive, send), 10))
    assert read <= 2
