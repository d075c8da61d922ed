"""A learner works on while its coordinator is away, and ends when nobody waits for it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from cluster.runtime import alone, connection
from cluster.runtime.process import attempt_of, name_of
from cluster.scheduler.adoption import Attempt

AWAY = int(connection.RUN_SECONDS / alone.PERIOD)  # questions without an answer that are borne


def ended_after(answers: Iterable[bool | None]) -> int:
    """How many questions were asked."""
    now, asked, said = [0.0], [0], iter(answers)

    def ask() -> bool | None:
        asked[0] += 1
        return next(said)

    def sleep(seconds: float) -> None:
        now[0] += seconds

    alone.until_alone(ask, lambda: None, lambda: now[0], sleep)
    return asked[0]


def test_it_ends_when_it_is_told_that_nobody_waits() -> None:
    assert ended_after([True] * 500 + [False]) == 501


def test_it_ends_when_no_coordinator_comes_back_for_long() -> None:
    assert ended_after([True] * 3 + [None] * 2 * AWAY) == 3 + AWAY + 1


def test_a_coordinator_that_comes_back_is_served_on() -> None:
    assert ended_after(([None] * AWAY + [True]) * 3 + [False]) == 3 * (AWAY + 1) + 1


@pytest.mark.parametrize("attempt", [Attempt("5f" * 32, 1), Attempt("run", 12)])
def test_a_learner_is_found_by_its_name(attempt: Attempt) -> None:
    assert attempt_of(name_of(attempt)) == attempt


@pytest.mark.parametrize("name", ["", "coordinator", "predictor", "SERVE_CONTROLLER_ACTOR"])
def test_other_actors_are_no_learners(name: str) -> None:
    assert attempt_of(name) is None
