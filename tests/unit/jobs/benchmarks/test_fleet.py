"""Learners that only ask, of a coordinator in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cluster.coordinator.core import Coordinator
from cluster.domain.work import Lease
from jobs.benchmarks import fleet
from jobs.benchmarks.fleet import Idle


class Near:
    """A coordinator, asked as an actor is."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator, self.asked = coordinator, list[Lease]()

    @property
    def lease(self) -> Any:
        return self

    async def remote(self, asked: Lease) -> object:
        self.asked.append(asked)
        return self._coordinator.lease(asked)


def test_each_learner_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    monkeypatch.setattr(fleet, "SECONDS", 0.05)
    runs = fleet._begun(tmp_path / "home", 3, lambda line: None)
    coordinator = Coordinator(tmp_path / "home", Idle())
    near = Near(coordinator)
    learners = fleet.Learners(near, runs)
    waits = [*asyncio.run(learners.ask(2, 0.3)), *asyncio.run(learners.ask(3, 0.3))]
    assert len(waits) == len(near.asked)
    assert min(waits) > 0
    for run_id in runs:
        first = [one.first for one in near.asked if one.run_id == run_id]
        assert first == [fleet.STEPS * n for n in range(len(first))]
        reached = coordinator._registry.run(run_id).reached
        assert reached == first[-1] + fleet.STEPS - 1
    coordinator.close()


def test_what_half_a_core_carries() -> None:
    asked = fleet.Fleet(100, answers=1000, seconds=20.0, cpu=2.0, wait_p50=1.0, wait_p99=2.0)
    assert asked.core == pytest.approx(0.1)  # 50 answers a second, 2 ms each
    assert asked.carried == 500
