"""How long users' runs ran is counted right and by few statements, however many of them end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from cluster.domain.status import RunState
from cluster.registry import Registry, Request
from tests.support.registry_scene import training
from tests.support.statements import statements

HOUR = 3600.0


class Clock:
    now = 1000 * HOUR


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "time", lambda: clock.now)
    return clock


def start(registry: Registry, *runs: tuple[str, str]) -> list[str]:
    """Runs of these names, each of a user."""
    for name, user in runs:
        work = training(name)
        registry.add_run(work, name)
        registry.add_run(work, name, user=user)
        registry.start(work.run_id)
    return [f"train {name}" for name, _ in runs]


def cancel(registry: Registry, run_ids: Sequence[str]) -> None:
    registry.cancel(run_ids, (), "ann", Request("cancel " + run_ids[0], "", ""))


def seconds(registry: Registry, *users: str) -> list[float]:
    return [sum(ran.values()) for ran in registry.run_times_of(users).values()]


ENDS: list[Callable[[Registry, Sequence[str]], None]] = [
    cancel,
    lambda registry, run_ids: registry.interrupted(run_ids),
]


@pytest.mark.parametrize("end", ENDS)
def test_of_many_runs_that_end_together(
    end: Callable[[Registry, Sequence[str]], None], registry: Registry, clock: Clock
) -> None:
    (before,) = start(registry, ("before", "ann"))
    clock.now += 10
    cancel(registry, [before])
    many = start(registry, ("a", "ann"), ("b", "ann"), ("c", "bob"), ("d", "cid"), ("e", "dan"))
    clock.now += 60
    start(registry, ("last", "eve"))  # the last event
    asked = statements(registry, partial(end, registry, many))
    assert seconds(registry, "ann", "bob", "cid", "dan", "eve") == [130, 60, 60, 60, 0]
    assert sum("ran" in said.split() for said, _ in asked) == 4  # known, more, new, old ones
    assert {registry.run(run_id).state for run_id in many} <= {RunState.CANCELLED, RunState.QUEUED}


def test_what_is_a_day_older_is_forgotten_with_the_next(registry: Registry, clock: Clock) -> None:
    for name, hours in (("a", 25), ("b", 0)):
        runs = start(registry, (f"{name} of ann", "ann"), (f"{name} of bob", "bob"))
        clock.now += 30
        cancel(registry, runs)
        clock.now += hours * HOUR
    clock.now -= 25 * HOUR  # as if it were looked at then
    assert seconds(registry, "ann", "bob") == [30, 30]
