"""The loudest pairs are those that a look at every pair would find."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.domain.tasks import GENERIC
from cluster.scheduler import matrix
from cluster.scheduler.loudest import LoudPair, loudest, share_of
from cluster.scheduler.plan import handle
from cluster.scheduler.state import Effect, Node, Published, Removed, State, VectorVersion
from tests.support.budget import budget
from tests.support.world import World

TASKS = "abcde"
Cells = list[tuple[str, str, float | None]]
CELLS = st.lists(
    st.tuples(
        st.sampled_from(TASKS),
        st.sampled_from(TASKS + "?"),  # a task without a champion
        st.none() | st.floats(0, 4),
    ),
    max_size=40,
)


def measured(cells: Cells) -> State:
    """One pair after the other; later ones take the place of earlier."""
    state = State("base")
    matrix.restore(state, {task: {} for task in TASKS})
    for task, on, answers in cells:
        matrix.put(state, task, on, Effect(1.0, answers))
    return state


@settings(max_examples=budget(200), deadline=None)
@given(cells=CELLS, hidden=st.sets(st.sampled_from(TASKS)), most=st.integers(1, 6))
def test_they_are_those_that_a_look_at_every_pair_finds(
    cells: Cells, hidden: set[str], most: int
) -> None:
    state = measured(cells)
    seen = [task for task in TASKS if task not in hidden]
    pairs = [(share_of(state, s, t), s, t) for s in seen for t in seen if s != t]
    every = sorted(
        (LoudPair(share, s, t) for share, s, t in pairs if share is not None), reverse=True
    )
    found = loudest(state, lambda task: task not in hidden, most)
    assert found == every[:most]


@given(CELLS, st.lists(st.sampled_from(TASKS)))
def test_bounds_stay_in_order(cells: Cells, anew: list[str]) -> None:
    state = measured(cells)
    for task in anew:
        matrix.put_row(state, task, {"a": Effect(1.0, 0.5), task: Effect(1.0, 1.0)})
    assert state.by_bound == sorted((bound, task) for task, bound in state.loudest.items())
    assert state.loudest.keys() == {*TASKS}
    matrix.drop_row(state, "a")
    assert [task for _, task in state.by_bound if task == "a"] == []


def test_rows_that_are_quieter_than_what_was_found_are_not_looked_at() -> None:
    state = measured([("a", "a", 1.0), ("b", "b", 1.0), ("a", "b", 0.5), ("c", "a", 0.1)])
    del state.rows["c"]  # a look at it would fail
    assert loudest(state, lambda _: True, 1) == [LoudPair(0.5, "a", "b")]


def test_of_rows_that_are_equally_loud_no_more_are_looked_at_than_are_told() -> None:
    own, others = [(task, task, 1.0) for task in "abc"], ("cb", "bc", "ab")
    state = measured([*own, *((task, on, 0.5) for task, on in others)])
    del state.rows["a"]  # a look at it would fail
    assert loudest(state, lambda _: True, 1) == [LoudPair(0.5, "c", "b")]


def test_a_quieter_own_vector_makes_all_others_louder() -> None:
    world = World(Node(2)).trained("a", "b", "c")
    state, nothing = world.state, frozenset[str]()
    world.request("again", "refresh", "b")
    row = {("b", "b 1", "head of b"): Effect(0.5, 0.5), ("a", "a 1", "head of a"): Effect(0.1, 0.1)}
    matrix.put(state, "a", "b", Effect(0.2, 0.2))
    world.happens(Published("again", "b", VectorVersion(2, "b v2", nothing), row, "head of b"))
    assert loudest(state, lambda _: True, 2) == [
        LoudPair(0.4, "a", "b"),
        LoudPair(0.1, "b", "a"),
    ]
    handle(state, Removed("b", ()))
    assert {pair.share for pair in loudest(state, lambda _: True, 9)} == {0.0}
    assert GENERIC not in {pair.on for pair in loudest(state, lambda _: True, 9)}
