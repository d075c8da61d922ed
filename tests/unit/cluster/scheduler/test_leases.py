"""How long leases are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.scheduler.leases import ANSWERS, LONGEST, SHORTEST, lease_seconds


@given(st.integers(0, 100_000), st.integers(0, 100_000))
def test_leases_grow_with_the_trainings_that_run(one: int, other: int) -> None:
    fewer, more = sorted((one, other))
    assert SHORTEST <= lease_seconds(fewer) <= lease_seconds(more) <= LONGEST


@given(st.integers(1, 100_000))
def test_a_coordinator_gives_so_many_answers_a_second_unless_leases_are_the_longest(
    trainings: int,
) -> None:
    seconds = lease_seconds(trainings)
    assert trainings / seconds <= ANSWERS * (1 + 1e-9) or seconds == LONGEST


def test_few_trainings_hear_of_everything_within_two_seconds() -> None:
    assert [lease_seconds(count) for count in (1, 400, 1000, 5000)] == [2.0, 2.0, 5.0, 10.0]
