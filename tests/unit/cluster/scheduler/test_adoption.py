"""Which learners a coordinator takes over: of plain data, whatever it is."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cluster.scheduler.adoption import Attempt, inherited

ATTEMPTS = st.builds(Attempt, st.sampled_from(["a", "b", "c"]), st.integers(1, 3))
RUNNING = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 3))


@given(RUNNING, st.lists(ATTEMPTS))
def test_every_learner_goes_on_or_is_ended(running: dict[str, int], there: list[Attempt]) -> None:
    wanted = [Attempt(*item) for item in running.items()]
    found = inherited(wanted, there)
    assert found.adopted | found.orphans == set(there)
    assert not found.adopted & found.orphans
    assert all(running.get(one.run_id) == one.number for one in found.adopted)
    assert all(running.get(one.run_id) != one.number for one in found.orphans)
    assert all(n == 1 for n in Counter(one.run_id for one in found.adopted).values())


def test_an_earlier_attempt_or_one_of_a_run_that_ended_is_an_orphan() -> None:
    there = [Attempt("a", 1), Attempt("a", 2), Attempt("done", 1)]
    found = inherited([Attempt("a", 2), Attempt("lost", 1)], there)
    assert found == ({Attempt("a", 2)}, {Attempt("a", 1), Attempt("done", 1)})
