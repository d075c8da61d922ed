"""Which learner does the next piece of work: of plain data, whatever it is."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.runtime import orphaned
from cluster.scheduler import reuse
from cluster.scheduler.reuse import IdleLearner, is_reusable, late, next_learner
from cluster.scheduler.state import ONE_CPU, Needs

NAMES = st.sampled_from(["a", "b", "c", "d"])
NEEDS = st.builds(Needs, st.just(1), st.integers(1, 2), st.integers(0, 1))
IDLE = st.lists(
    st.builds(IdleLearner, NAMES, NEEDS, st.floats(0, 10)),
    unique_by=lambda one: one.learner,
)


@given(IDLE, NEEDS, st.sets(NAMES))
def test_one_that_is_there_and_has_the_same_room_or_all_of_them_end(
    idle: list[IdleLearner], needs: Needs, there: Collection[str]
) -> None:
    found = next_learner(idle, needs, there)
    able = [one for one in idle if one.needs == needs and one.learner in there]
    if able:
        assert found.learner in able
        assert not found.ended
    else:
        assert found.learner is None
        assert found.ended == {one.learner for one in idle}


def test_the_one_that_worked_last_goes_on() -> None:
    idle = [
        IdleLearner("a", ONE_CPU, 3.0),
        IdleLearner("b", ONE_CPU, 5.0),
        IdleLearner("c", ONE_CPU, 4.0),
    ]
    found = next_learner(idle, ONE_CPU, "abc").learner
    assert found is not None
    assert found.learner == "b"


@pytest.mark.parametrize("needs", [Needs(1, 2), Needs(1, 1, 1), Needs(2, 1)])
def test_other_room_asks_for_another_learner(needs: Needs) -> None:
    assert next_learner([IdleLearner("a", ONE_CPU, 0.0)], needs, "a") == (None, {"a"})


def test_a_leader_of_a_group_and_one_that_has_done_enough_end() -> None:
    assert is_reusable(ONE_CPU, 1)
    assert not is_reusable(Needs(2, 1), 1)
    assert is_reusable(ONE_CPU, reuse.RUNS - 1)
    assert not is_reusable(ONE_CPU, reuse.RUNS)
    assert not is_reusable(ONE_CPU, 1, most=1)


@given(IDLE, st.floats(0, 20))
def test_nobody_waits_for_long(idle: list[IdleLearner], now: float) -> None:
    left = {one.learner for one in idle} - late(idle, now)
    assert left == {one.learner for one in idle if now - one.since <= reuse.SECONDS}


def test_a_learner_that_looks_twice_has_been_given_more_by_then_or_ended() -> None:
    assert orphaned.PERIOD > reuse.SECONDS
