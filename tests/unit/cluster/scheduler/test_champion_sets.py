"""What fits of heads are of, in one number for each owner."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.tasks import Options
from cluster.scheduler import champion_sets
from cluster.scheduler.state import PlannedRun, PlannedTask, State, VectorVersion
from cluster.scheduler.upkeep import concerns, fits

OWNERS = {"c": "ann", "d": "bob"}
MOVES = st.lists(st.tuples(st.sampled_from("abcdt"), st.sampled_from(["", "1", "2"])), max_size=20)


def state_of(*champions: str) -> State:
    """Tasks a and b for everybody, c and d private, and t, which no heads are fitted of."""
    options = {name: Options(heads="trained" if name == "t" else "fitted") for name in "abcdt"}
    tasks = {name: PlannedTask(place, options[name], name) for place, name in enumerate("abcdt")}
    vectors = {name: VectorVersion(1, f"{name} 1", frozenset()) for name in champions}
    return State("base", tasks=tasks, owners=dict(OWNERS), champions=vectors)


def move(state: State, task: str, version: str) -> None:
    """No version: it is removed."""
    vector = f"{task} {version}" if version else None
    champion_sets.before_champion_change(state, task, vector)
    state.champions.pop(task, None)
    if vector is not None:
        state.champions[task] = VectorVersion(int(version), vector, frozenset())


@given(MOVES, MOVES)
def test_what_moved_one_by_one_is_what_is_there(
    before: list[tuple[str, str]], after: list[tuple[str, str]]
) -> None:
    state = state_of("a", "c")
    for task, version in before:
        move(state, task, version)
    assert fits(state) == fits(replace(state, fits=None, champion_sets=None))
    for task, version in after:
        move(state, task, version)
        assert fits(state) == fits(replace(state, fits=None, champion_sets=None))


def test_a_fit_is_of_everybodys_tasks_and_of_its_owners_own() -> None:
    state = state_of(*"abcdt")
    assert list(fits(state).values()) == ["", "ann", "bob"]
    of = {owner: champion_sets.champions(state, owner).keys() for owner in ("", "ann", "bob")}
    assert of == {"": {*"ab"}, "ann": {*"abc"}, "bob": {*"abd"}}
    for owner, tasks in of.items():
        run = PlannedRun("fit", "fit", 0, owner=owner)
        assert {task for task in "abcdt" if concerns(state, run, task)} == tasks


def test_a_fit_is_another_when_any_of_its_tasks_has_another_champion() -> None:
    state = state_of(*"abcdt")
    before = fits(state)
    move(state, "c", "2")
    assert [owner for run, owner in fits(state).items() if run not in before] == ["ann"]
    move(state, "c", "1")
    assert fits(state) == before
    move(state, "a", "2")
    assert not fits(state).keys() & before
    assert not fits(state_of("t"))


def test_a_champion_that_moves_is_no_reason_to_look_at_the_others() -> None:
    class Closed(dict[str, VectorVersion]):
        def __iter__(self):
            raise AssertionError("all champions were looked at")

        items = values = keys = __iter__  # type: ignore[assignment]

    state = state_of(*"abcdt")
    before = fits(state)
    state.champions = Closed(state.champions)
    move(state, "a", "2")
    assert len(fits(state)) == len(before)
