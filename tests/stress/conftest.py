"""What tests of crashes share."""

from __future__ import annotations

import pytest

from cluster.registry import Registry


@pytest.fixture
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses no writes, so these tests need not wait for them."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    monkeypatch.setattr(Registry._write, "__defaults__", ("relaxed", None))
