"""A Hugging Face hub in this process, and somebody who is logged in there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.hub import Hub


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
