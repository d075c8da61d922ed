"""How long leases are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.scheduler.leases import (
    COST,
    DEAREST,
    LONGEST,
    SHARE,
    SHORTEST,
    WINDOW,
    Leases,
    lease_seconds,
)

MANY = st.integers(0, 100_000)
COSTS = st.floats(COST, DEAREST)


@given(MANY, MANY, COSTS)
def test_leases_grow_with_the_trainings_that_run(one: int, other: int, cost: float) -> None:
    fewer, more = sorted((one, other))
    assert SHORTEST <= lease_seconds(fewer, cost) <= lease_seconds(more, cost) <= LONGEST


@given(st.integers(1, 100_000), COSTS)
def test_answers_take_a_share_of_a_core_unless_leases_are_the_longest(
    trainings: int, cost: float
) -> None:
    seconds = lease_seconds(trainings, cost)
    assert trainings / seconds * cost <= SHARE * (1 + 1e-9) or seconds == LONGEST


def test_few_trainings_hear_of_everything_within_two_seconds() -> None:
    assert [lease_seconds(count) for count in (1, 400, 1000, 5000)] == [2.0, 2.0, 5.0, 10.0]
    assert lease_seconds(80, DEAREST) == SHORTEST  # whatever else the coordinator does


@given(st.floats(0, 0.1))
def test_leases_are_longer_where_answers_take_longer(each: float) -> None:
    leases, taken = Leases(), 7.0
    told = []
    for _ in range(3 * WINDOW):
        told.append(leases.seconds(1000, taken))
        taken += each
    assert told[0] == lease_seconds(1000)
    within = min(DEAREST, max(COST, each))
    assert abs(told[-1] - lease_seconds(1000, within)) <= 0.01 * told[-1]
