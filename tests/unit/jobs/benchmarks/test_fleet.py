"""Learners that only ask, of a coordinator in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import pytest

from cluster.coordinator.core import Coordinator
from cluster.domain.work import Lease
from cluster.scheduler import leases
from jobs.benchmarks import fleet
from jobs.benchmarks.calls import NOBODY
from jobs.benchmarks.fleet import Fleet, IdleLauncher
from jobs.benchmarks.scale import Scale
from jobs.benchmarks.scale_tables import largest


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
    monkeypatch.setattr(fleet, "RATE", 1000)
    monkeypatch.setattr(leases, "SHORTEST", 0.05)  # with three trainings 0.06, as they are told
    monkeypatch.setattr(leases, "SHARE", 50 * leases.COST)
    endless, newcomers = fleet.fleet_of(tmp_path / "home", lambda line: None)
    tasks = islice(endless, 3)
    coordinator = Coordinator(tmp_path / "home", IdleLauncher())
    runs = [coordinator.submit(NOBODY, task).run_id for task in tasks]
    near = Near(coordinator)
    learners = fleet.Learners(near)
    answers = asyncio.run(learners.ask(runs[:2], 0.02, 0.3))
    answers += asyncio.run(learners.ask(runs, 0.06, 0.3))
    assert len(answers) == len(near.asked)
    assert min(one.wait for one in answers) > 0
    assert {one.lease for one in answers} == {0.06}
    for number, run_id in enumerate(runs):
        asked = [one for one in near.asked if one.run_id == run_id]
        steps = [one.last + 1 - one.first for one in asked]
        assert steps[1:] == [60] * (len(asked) - 1)
        assert steps[0] == (20 if number < 2 else 60)
        assert [one.first for one in asked] == [0, *accumulate(steps[:-1])]
        assert coordinator._registry.run(run_id).reached == asked[-1].last
    arrived = coordinator.submit(NOBODY, next(newcomers)).task
    reached = asked[-1].last
    next_lease = Lease(run_id=runs[-1], first=reached + 1, last=reached + 60, since=reached)
    assert {one.shard.task for one in coordinator.lease(next_lease).arrivals} == {arrived}
    coordinator.close()


@pytest.mark.parametrize(
    ("told", "asked", "found"),
    [
        ([8.0, 5.0, 5.2], [10.0, 8.0, 5.0], 5.2),
        ([10.0], [10.0], 10.0),
        ([5.0, 9.0] * 3, [10.0, 5.0, 9.0, 5.0, 9.0, 5.0], 9.0),  # it never settles
    ],
)
def test_what_is_measured_begins_once_the_lease_is_what_it_was(
    told: list[float], asked: list[float], found: float
) -> None:
    leases_asked, answers = list[float](), iter(told)

    def ask(lease: float) -> list[fleet.Answer]:
        leases_asked.append(lease)
        return [fleet.Answer(1.0, next(answers))]

    assert fleet.settled(ask) == found
    assert leases_asked == asked


def test_the_share_of_a_core_is_at_the_lease_that_the_coordinator_says() -> None:
    measured = {"answers": 1000, "seconds": 20.0, "cpu": 2.0, "wait_p50": 1.0, "wait_p99": 2.0}
    assert fleet.Fleet(100, lease=2.0, **measured).core == pytest.approx(0.1)  # 50 of 2 ms
    assert fleet.Fleet(100, lease=4.0, **measured).core == pytest.approx(0.05)


def carrying(most: int) -> Callable[[int], Fleet]:
    """A coordinator that answers so many learners in time; of more it takes a whole core."""

    def measured(learners: int) -> Fleet:
        cpu = 0.1 if learners <= most else 10.0
        return Fleet(learners, learners, 2.0, 2 * cpu, 1.0, 2.0, lease=2.0)

    return measured


@pytest.mark.parametrize(
    ("most", "tried", "said"),
    [
        (1, [2, 4, 8], "None of them is within both goals."),
        (4, [2, 4, 8], "4 learners; 8 miss one."),
        (12, [2, 4, 8, 12, 18], "12 learners; 18 miss one."),
        (1000, [2, 4, 8, 12, 18, 27, 41, 62], "62 learners; more were not tried."),
    ],
)
def test_fleets_grow_until_one_is_not_carried(most: int, tried: list[int], said: str) -> None:
    fleets = fleet.growing(8, carrying(most))
    assert [one.learners for one in fleets] == tried
    found = Scale("machine", 1, {}, fleets=fleets)
    assert largest(fleets).endswith(said)
    asked_for = {one.what for one in found.goals() if "learners" in one.what}
    assert len(asked_for) == 2 * 3  # what lies beyond is no goal
    assert fleet.growing(1, carrying(most))
