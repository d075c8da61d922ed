"""What the bench of the control plane asks, and how it looks at the lock."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.coordinator.core import Coordinator
from cluster.domain.api import CoordinatorAPI, ReadAPI, RunAPI
from cluster.reading.reader import Reader
from jobs.benchmarks import every
from jobs.benchmarks.arriving import ArrivalCost, in_small_homes
from jobs.benchmarks.calls import CallCost, Spread, Turns, cost
from jobs.benchmarks.every import UNMEASURED, calls
from jobs.benchmarks.fleet import IdleLauncher
from jobs.benchmarks.held import Held, Hold
from jobs.benchmarks.population import Population, Size, made_up
from jobs.benchmarks.scale import MeasuredHome, Scale
from jobs.benchmarks.scale_tables import arrival_costs, histogram, markdown, picture
from jobs.benchmarks.stream import Upkeep
from jobs.benchmarks.trainings import changes

SMALL = Size(tasks=12, versions=3, compositions=30, rows=40, private=2)
ROUNDS = 2


@pytest.fixture
def population(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Population:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    return made_up(tmp_path / "home", SMALL)


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
    monkeypatch.setattr(every, "Reader", lambda *given, **named: Noting(Reader(*given, **named)))
    coordinator = Coordinator(population.home.path, IdleLauncher())
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


def test_of_a_small_home_no_more_is_purged_than_it_has(population: Population) -> None:
    """However many rounds are asked for."""
    rounds = 10 * len(population.shards)
    coordinator = Coordinator(population.home.path, IdleLauncher())
    asking = Turns(population, rounds)
    (purge,) = (call for call in changes(asking, coordinator) if call.what == "purge")
    cost(purge, rounds)
    left = coordinator._registry.task_names()
    assert 0 < len(left) < len(population.shards)
    coordinator.close()


def test_what_is_waited_for_under_the_lock_is_seen_by_the_clock() -> None:
    lock = Held()

    def purge() -> None:
        with lock:
            _wait()

    def _wait() -> None:
        with lock:  # reentrant: one time
            time.sleep(0.2)

    purge()
    (hold,) = lock.times
    assert hold.method == "purge"
    assert hold.clock >= 200 > 20 * hold.cpu
    home = measured(hold, Hold(30.0, 40.0, "status"))
    goals = {one.what: one for one in Scale("machine", 1, {"100": home}).goals()}
    longest = "longest time under the lock at 100 tasks"
    assert not goals[f"{longest}, in `status`, CPU ms"].missed
    assert goals[f"{longest}, in `purge`, ms by the clock"].missed
    rows = {what: counts for what, *counts in histogram(Scale("machine", 1, {"100": home}))}
    assert rows["200 to 1000"] == ["0", "1"]
    assert rows["20 to 50"] == ["1", "1"]


def measured(*held: Hold) -> MeasuredHome:
    """A home of 100 tasks where nothing was asked."""
    nothing = Spread(0.0, 0.0)
    start = CallCost("", "start", nothing, nothing, nothing)
    return MeasuredHome(SMALL, start, start, 0, held, (), ArrivalCost(1.0, 1000), ())


def test_what_an_arrival_costs_is_drawn_over_the_number_of_tasks(tmp_path: Path) -> None:
    home = measured(Hold(1.0, 2.0, "status"))
    many = replace(home, size=replace(SMALL, tasks=1000), arrival=ArrivalCost(10.0, 200_000))
    upkeep = [Upkeep(n, trainings=0.5, cpu_ms=5.0) for n in (4, 1000, 10_000)]
    found = Scale("machine", 1, {"1,000": many}, upkeep=upkeep, few={4: ArrivalCost(2.0, 50_000)})
    assert arrival_costs(found) == {
        "upkeep, trainings": {4: 0.5, 1000: 0.5, 10_000: 0.5},
        "coordinator, CPU ms": {4: 7.0, 1000: 15.0},
        "written, kB": {4: 50.0, 1000: 200.0},
    }
    rows = [line for line in markdown(found).splitlines() if "| 0.50 |" in line]
    assert [[cell.strip() for cell in row.split("|")[-3:-1]] for row in rows] == [
        ["2.0", "50,000"],
        ["10.0", "200,000"],
        ["", ""],
    ]
    pictures = [tmp_path / "with.png", tmp_path / "without.png"]
    for place, one in zip(pictures, (found, replace(found, few={}, upkeep=())), strict=True):
        picture(one, place)
    assert pictures[0].read_bytes() != pictures[1].read_bytes()


def test_homes_of_few_tasks_are_made_for_what_an_arrival_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    found = in_small_homes((2, 6), lambda line: None)
    assert [*found] == [2, 6]
    assert all(one.cpu_ms > 0 and one.written > 1000 for one in found.values())
