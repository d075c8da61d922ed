"""A server reads the registry itself: also while the coordinator is busy or dead; where it cannot,
it asks."""

from __future__ import annotations

import asyncio
import logging
from asyncio import run
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

from cluster.api.access import hashed
from cluster.domain.api import CoordinatorAPI
from cluster.domain.base import RequestContext
from cluster.domain.compositions import Composition
from cluster.registry import dialects
from cluster.runtime import local_socket, own_reader
from cluster.serving import app
from cluster.serving.app import Ingress
from cluster.serving.own_reads import OwnReads
from cluster.storage.home import Home
from tacl.errors import NotAuthenticated, StorageUnavailable
from tests.support.fakes import ADMIN, Scene, asks
from tests.support.silent import silent

ANN = RequestContext(user="ann")
TOKEN = hashed("ann's")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """Whose coordinator listens, and answers nothing."""
    found = Scene(tmp_path).trained("a", "b")
    found.coordinator.compose(asks("compose"), "ann", ["+a"])
    found.coordinator.issue_token(asks("issue"), "ann", "user", TOKEN)
    local_socket.listen(tmp_path, lambda *asked: None)
    yield found
    found.coordinator.close()


class Away:
    """A coordinator that never answers; `asked`: what it was."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []

    async def __call__(self, method: str, *arguments: object, **named: object) -> Any:
        self.asked.append((method, arguments))
        await asyncio.Event().wait()


class There(Away):
    """One that answers."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._coordinator = scene.coordinator

    async def __call__(self, method: str, *arguments: object, **named: object) -> Any:
        self.asked.append((method, arguments))
        return getattr(self._coordinator, method)(*arguments, **named)


def ingress(home: Home, coordinator: Away, monkeypatch: pytest.MonkeyPatch) -> Ingress:
    monkeypatch.setattr(app, "log_to", lambda *where: None)
    monkeypatch.setattr(app, "_listen_as_the_node", lambda: None)
    monkeypatch.setattr(Ingress, "_asked", lambda self, *a, **named: coordinator(*a, **named))
    return Ingress(home.where, cast(Any, None), 1, False)


def test_what_is_read_is_answered_while_the_coordinator_is_dead(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is decided, or known to the plan alone, waits for it."""
    away = Away()

    async def story() -> None:
        ask = ingress(scene.home, away, monkeypatch).ask
        compose = ask(CoordinatorAPI.compose, ANN, "ann", ["+b"])
        waits: list[asyncio.Task[Any]] = [asyncio.create_task(compose)]
        asked = [
            ask(CoordinatorAPI.holder, TOKEN),
            ask(CoordinatorAPI.composition, ANN, "ann"),
            ask(CoordinatorAPI.vectors, ANN, None, ""),
            ask(CoordinatorAPI.logs, ANN, "a"),
            ask(CoordinatorAPI.tokens),
        ]
        holder, model, vectors, events, tokens = await asyncio.wait_for(asyncio.gather(*asked), 20)
        assert (holder.user, model.user) == ("ann", "ann")
        assert {one.task for one in vectors} == {"a", "b"}
        assert events == scene.coordinator.logs(ANN, "a")
        assert [one.user for one in tokens] == ["ann"]
        with pytest.raises(NotAuthenticated):
            await ask(CoordinatorAPI.holder, hashed("nobody's"))
        waits.append(asyncio.create_task(ask(CoordinatorAPI.status, ADMIN)))
        await asyncio.sleep(0.1)
        assert not any(one.done() for one in waits)

    run(story())
    assert [method for method, _ in away.asked] == ["compose", "holders", "status"]


def test_what_was_decided_is_read(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over one server, question by question."""

    async def story() -> None:
        ask = ingress(scene.home, There(scene), monkeypatch).ask
        for number, task in enumerate("abab"):
            made = await ask(CoordinatorAPI.compose, asks(f"{number}"), "ann", [f"+{task}"])
            assert await ask(CoordinatorAPI.composition, ANN, "ann") == made
        await ask(CoordinatorAPI.revoke_tokens, asks("revoke"), "ann")
        with pytest.raises(NotAuthenticated):
            await ask(CoordinatorAPI.holder, TOKEN)

    run(story())


def test_the_use_of_a_token_is_noted_and_nobody_waits_for_it(scene: Scene) -> None:
    away, there = Away(), There(scene)

    async def story(coordinator: Away, is_told: Callable[[], bool]) -> None:
        own = OwnReads(scene.home, coordinator)
        for _ in range(3):
            assert [one.user for one in await own.ask("holders", [TOKEN])] == ["ann"]
            while not is_told():
                await asyncio.sleep(0.01)

    def is_written() -> bool:
        return scene.coordinator.tokens("ann")[0].used is not None

    run(story(away, lambda: bool(away.asked)))
    assert away.asked == [("holders", ([TOKEN],))]  # once, while it is not answered
    run(story(there, is_written))
    assert there.asked == [("holders", ([TOKEN],))]


@pytest.mark.timeout(30)  # a server that is silent was waited for
@pytest.mark.parametrize("where", ["another machine", "no credentials", "silent", "lets in"])
def test_where_it_cannot_be_read_the_coordinator_is_asked(
    where: str, scene: Scene, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said once."""
    there = There(scene)
    away = nullcontext("postgresql://nobody@127.0.0.1:1/x")
    server = away if where == "no credentials" else silent(where == "lets in")
    if where == "another machine":
        (scene.home.path / local_socket.SOCKET).unlink()
    monkeypatch.setattr(own_reader, "AGAIN", 0.0)
    monkeypatch.setattr(dialects, "TIMEOUT", 0.1)

    async def story() -> None:
        own = OwnReads(scene.home, there)
        for _ in range(2):
            (model,) = await own.ask("compositions", ["ann"])
            assert isinstance(model, Composition)

    with caplog.at_level(logging.WARNING), server as url:
        if where != "another machine":
            monkeypatch.setattr(Home, "registry_url", property(lambda self: url))
        run(story())
    assert len(there.asked) == 2
    assert len([one for one in caplog.records if "is not read here" in one.message]) == 1


def test_it_is_tried_again_to_read_it(
    scene: Scene, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be opened, not at once."""
    there, socket = There(scene), scene.home.path / local_socket.SOCKET
    socket.rename(aside := scene.home.path / "aside")

    async def story() -> None:
        own = OwnReads(scene.home, there)
        await own.ask("tokens")
        aside.rename(socket)
        await own.ask("tokens")
        assert len(there.asked) == 2
        monkeypatch.setattr(own_reader, "AGAIN", 0.0)
        await own.ask("tokens")
        assert len(there.asked) == 2
        reader = own._reader._reader
        assert reader
        with monkeypatch.context() as patch:
            patch.setattr(reader._registry, "tokens_after", _away)
            await own.ask("tokens")
        assert len(there.asked) == 3
        await own.ask("tokens")
        assert len(there.asked) == 3

    with caplog.at_level(logging.WARNING):
        run(story())
    assert len([one for one in caplog.records if "is not read here" in one.message]) == 2


def test_while_it_cannot_be_read_nobody_waits_for_it_anew(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look may take as long as the registry is given to answer."""
    there, looks = There(scene), list[object]()

    def away(*asked: object) -> None:
        looks.append(asked)
        raise StorageUnavailable("no answer in time")

    async def story() -> None:
        own = OwnReads(scene.home, there)
        await own.ask("tokens")
        reader = own._reader._reader
        assert reader
        monkeypatch.setattr(reader._registry, "tokens_after", away)
        for _ in range(3):
            await own.ask("tokens")

    run(story())
    assert (len(looks), len(there.asked)) == (1, 3)


def _away(*_: object) -> None:
    raise StorageUnavailable("away")
