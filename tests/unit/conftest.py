"""What unit tests share: a Hugging Face hub in this process, somebody who is logged in there, and
clients that ask again soon."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.hub import Hub

SOON = 0.01  # seconds until a client asks again


@pytest.fixture(scope="module", autouse=True)
def clients_ask_again_soon() -> Iterator[None]:
    """What they wait for is done in this process, mostly when they ask."""
    from cluster.client import model_operations, task_operations, waiting

    clock = SimpleNamespace(
        monotonic=time.monotonic, sleep=lambda seconds: time.sleep(min(seconds, SOON))
    )
    with pytest.MonkeyPatch.context() as patch:
        for module in (model_operations, task_operations, waiting):
            patch.setattr(module, "time", clock)
        yield


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    from tests.support import hub

    with hub.running(monkeypatch) as found:
        yield found


@pytest.fixture
def ann(monkeypatch: pytest.MonkeyPatch) -> None:
    """Is logged in."""
    from tests.support import hub

    monkeypatch.setenv("HF_TOKEN", hub.TOKEN)
