"""What the bench of the control plane asks, and how it looks at the lock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.coordinator.core import Coordinator
from cluster.domain.api import CoordinatorAPI, ReadAPI, RunAPI
from cluster.reading.reader import Reader
from jobs.benchmarks import server
from jobs.benchmarks.calls import cost
from jobs.benchmarks.every import UNMEASURED, calls
from jobs.benchmarks.fleet import Idle
from jobs.benchmarks.population import Population, Size, made_up

SMALL = Size(tasks=12, versions=3, compositions=30, rows=40, private=2)
ROUNDS = 2


@pytest.fixture
def population(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Population:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    found = made_up(tmp_path / "home", SMALL)
    found.fill(lambda line: None)
    return found


class Noting:
    """Whoever answers, and which of its methods are `asked` while a call is `measured`."""

    asked, measured = set[str](), False

    def __init__(self, answers: Any) -> None:
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._answers, name)
        if name.startswith("_") or not callable(found):
            return found

        def method(*given: Any, **named: Any) -> Any:
            Noting.asked |= {name} if Noting.measured else set()
            return found(*given, **named)

        return method


def methods(*protocols: type) -> set[str]:
    return {name for one in protocols for name in vars(one) if not name.startswith("_")}


def test_every_method_is_measured_or_said_why_not(
    population: Population, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Noting, "asked", set())
    monkeypatch.setattr(server, "Reader", lambda *given, **named: Noting(Reader(*given, **named)))
    coordinator = Coordinator(population.home.path, Idle())
    names = list[str]()
    for call in calls(population, Noting(coordinator), ROUNDS):  # pyright: ignore[reportArgumentType]
        Noting.measured = True
        names.append(cost(call, ROUNDS).name)
        Noting.measured = False
    coordinator.tick()
    assert coordinator._trouble is None
    coordinator.close()
    assert len(names) == len({*names})
    asked_of_all = methods(ReadAPI, CoordinatorAPI, RunAPI)
    assert asked_of_all - Noting.asked == UNMEASURED.keys()
    assert all(UNMEASURED.values())
