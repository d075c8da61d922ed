"""What grows with people or with time is told a page at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.client import model_operations
from cluster.client.client import Client
from cluster.coordinator import vectors
from cluster.domain.base import PAGE
from cluster.domain.tasks import ANY
from cluster.reading import reads
from cluster.scheduler.state import Node
from tacl.errors import TooMany
from tests.support.fakes import ADMIN, Scene, asks, submission


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    found = Scene(tmp_path, Node(2))
    found.coordinator.submit(ADMIN, submission(found.home, "news", owner="ann"))
    found.settle()
    for user in ("ann", "bob"):
        found.coordinator.compose(asks(f"compose {user}"), user, ["+news"])
    yield found
    found.coordinator.close()


def test_changes_of_aliases_are_told_a_page_at_a_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for alias in ("stable", "tested", "mine"):
        scene.coordinator.move_alias(asks(alias), "news", alias, 1, ANY)
    whole = scene.coordinator.aliases(ADMIN, "news")
    assert len(whole.history) > 3
    monkeypatch.setattr(reads, "PAGE", 2)
    monkeypatch.setattr(model_operations, "PAGE", 2)
    page = scene.coordinator.aliases(ADMIN, "news", 1)
    assert page.history == whole.history[1:3]
    assert page.aliases == whole.aliases
    assert Client(scene.home.path, scene.coordinator).aliases("news") == whole


def test_a_task_has_only_so_many_aliases(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer names them all."""
    monkeypatch.setattr(vectors, "ALIASES", 2)
    scene.coordinator.move_alias(asks("first"), "news", "stable", 1, ANY)
    with pytest.raises(TooMany, match=r"news@tested would be new.* has 2 aliases.* move one"):
        scene.coordinator.move_alias(asks("second"), "news", "tested", 1, ANY)
    scene.coordinator.refresh(asks("refresh"), "news")
    scene.settle()
    scene.coordinator.move_alias(asks("third"), "news", "stable", 2, 1)
    aliases = scene.coordinator.aliases(ADMIN, "news").aliases
    assert aliases == {"champion": 2, "stable": 2}


def test_models_are_listed_a_page_at_a_time(scene: Scene) -> None:
    users = [f"user{number:03}" for number in range(PAGE + 5)]
    for user in users:
        scene.coordinator.compose(asks(f"compose {user}"), user, ["+news"])
    first = [one.user for one in scene.coordinator.users(ADMIN)]
    assert first == ["ann", "bob", *users[: PAGE - 2]]
    rest = [one.user for one in scene.coordinator.users(ADMIN, after=first[-1])]
    assert rest == users[PAGE - 2 :]
    assert scene.coordinator.users(ADMIN, after=rest[-1]) == []
    assert [one.user for one in scene.coordinator.users(ADMIN, "user007")] == ["user007"]


def test_events_are_listed_a_page_at_a_time(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = scene.coordinator
    whole = [*coordinator.logs(ADMIN, "news")]
    assert coordinator.logs(ADMIN, "news", len(whole)) == []
    monkeypatch.setattr(reads, "PAGE", 2)
    assert coordinator.logs(ADMIN, "news") == whole[:2]
    assert coordinator.logs(ADMIN, "news", 3) == whole[3:5]
    assert Client(scene.home.path, coordinator).logs("news") == whole
    assert len(whole) > 3
