"""A request is answered again as before within a week; then its answer leaves, with others that
come, a few at a time."""

from __future__ import annotations

import time

import pytest

from cluster.registry import Registry, Request
from cluster.registry.database import FORGOTTEN, KEPT


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Its last number is the time."""
    moments = [1_000_000.0]
    monkeypatch.setattr(time, "time", lambda: moments[-1])
    return moments


def ask(registry: Registry, *ids: str) -> None:
    for one in ids:
        registry.revoke("nobody", Request(one, "asked", f"answer to {one}"))


def known(registry: Registry, *ids: str) -> list[str]:
    return [one for one in ids if registry.answer(one, "asked") == f"answer to {one}"]


def test_an_answer_is_kept_for_a_week(registry: Registry, wait: list[float]) -> None:
    ask(registry, "first")
    wait.append(wait[-1] + KEPT)
    ask(registry, "second")
    assert known(registry, "first", "second") == ["first", "second"]
    wait.append(wait[-1] + 1)
    ask(registry, "third")
    assert registry.kept("first") is None
    assert known(registry, "second", "third") == ["second", "third"]
    ask(registry, "first")
    assert known(registry, "first") == ["first"]


def test_each_that_comes_takes_a_few_with_it_the_oldest_first(
    registry: Registry, wait: list[float]
) -> None:
    ids = [f"id {number}" for number in range(2 * FORGOTTEN + 1)]
    for one in ids:
        ask(registry, one)
        wait.append(wait[-1] + 1)
    wait.append(wait[-1] + KEPT)
    for new, left in ("a", ids[FORGOTTEN:]), ("b", ids[2 * FORGOTTEN :]), ("c", []):
        ask(registry, new)
        assert known(registry, *ids) == left
    assert known(registry, "a", "b", "c") == ["a", "b", "c"]
