"""A home, and who reads its registry: the coordinator, or a process beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from cluster.domain.api import ReadAPI
from cluster.reading.reader import Reader
from cluster.scheduler.state import Node
from tests.support.fakes import Scene


@pytest.fixture
def scene(tmp_path: Path, registry_url: str) -> Iterator[Scene]:
    found = Scene(tmp_path, Node(4), registry=registry_url)
    yield found
    found.coordinator.close()


@pytest.fixture
def reader(scene: Scene) -> Iterator[Reader]:
    """Opened while nothing is there; and it has looked."""
    found = Reader(scene.home, note=lambda hashes: None)
    assert found.usage() == []
    yield found
    found.close()


class Anew:
    """A reader for each question: it knows what the registry says now."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def __getattr__(self, method: str) -> Any:
        def ask(*arguments: object) -> Any:
            reader = Reader(self._scene.home, note=lambda hashes: None)
            try:
                return getattr(reader, method)(*arguments)
            finally:
                reader.close()

        return ask


class Now:
    """The coordinator of a scene, also after one that died."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def __getattr__(self, method: str) -> Any:
        return getattr(self._scene.coordinator, method)


@pytest.fixture(params=["coordinator", "reader", "anew"])
def reads(request: pytest.FixtureRequest, scene: Scene) -> ReadAPI:
    """Who answers."""
    if request.param == "reader":
        return request.getfixturevalue("reader")
    return cast(ReadAPI, (Now if request.param == "coordinator" else Anew)(scene))
