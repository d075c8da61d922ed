"""Who gives its place to what somebody waits for: examples, then anything that may be there."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.domain.status import RunState
from cluster.scheduler.giving_way import MOST, giving_way
from cluster.scheduler.queue import MAX_BYPASSES, has_room, in_turn
from cluster.scheduler.state import (
    ONE_CPU,
    Cancelled,
    Died,
    Ended,
    MinutesTaken,
    Needs,
    Node,
    NodesChanged,
    PlaceGivenBack,
    PlannedRun,
    Requeue,
    State,
    Urgency,
)
from tests.support.budget import budget
from tests.support.world import World


def upkeep(world: World, *run_ids: str, needs: Needs = ONE_CPU, asked: bool = False) -> None:
    for run_id in run_ids:
        world.request(run_id, "refresh", run_id, needs, "ann" if asked else None)


def test_upkeep_gives_way_to_what_somebody_waits_for_and_goes_on_later() -> None:
    world = World(Node(2))
    upkeep(world, "r", "s")
    world.request("e", "evaluate")
    assert world.giving_way == {"s"}  # one place is enough: that of the one that came last
    assert "refreshing s, which gives way" in world.why("e")
    assert Requeue("s", None) in world.happens(PlaceGivenBack("s"))
    assert world.running == {"r", "e"}
    assert world.state.runs["s"].deaths == 0
    world.happens(Ended("e"))
    assert world.running == {"r", "s"}


def test_training_goes_before_upkeep_too_and_gives_way_to_no_training() -> None:
    world = World(Node(2))
    upkeep(world, "r")
    world.request("e", "evaluate")
    world.request("t", "train", "t")
    assert world.giving_way == {"r"}
    world.give_way()
    world.request("u", "train", "u")
    assert world.giving_way == set()


def test_a_person_does_not_wait_for_a_training_behind_late_upkeep() -> None:
    """The place that a training leaves is that of the upkeep first, which then gives way too."""
    world = World(Node(2))
    for number in range(2):
        world.request(f"t{number}", "train", f"t{number}")
    upkeep(world, "r")
    for number in range(2, 2 + MAX_BYPASSES):
        world.request(f"t{number}", "train", f"t{number}")
    while world.state.passed.get(Urgency.UPKEEP, 0) < MAX_BYPASSES:
        world.happens(Ended(min(world.running)))
    world.request("e", "evaluate")
    assert [run.run_id for run in in_turn(world.state)] == ["r"]
    (training,) = world.give_way()
    assert training.startswith("t")
    assert "r" in world.running
    assert world.give_way() == {"r"}
    assert "e" in world.running


def test_what_comes_after_a_late_run_that_is_withdrawn_has_let_nobody_pass() -> None:
    world = World(Node(1))
    world.request("t", "train", "t")
    upkeep(world, "r")
    for number in range(MAX_BYPASSES):
        world.request(f"t{number}", "train", f"t{number}")
        world.happens(Ended(min(world.running)))
    assert world.state.passed[Urgency.UPKEEP] == MAX_BYPASSES
    world.happens(Cancelled("r"))
    upkeep(world, "s")
    world.request("e", "evaluate")
    assert [run.run_id for run in in_turn(world.state)] == ["e", "s"]


def test_a_small_training_gives_way_to_what_a_person_waits_for_and_nothing_to_more() -> None:
    world = World(Node(4, 2))
    world.request("wide", "train", "wide", Needs(2, 1))
    world.request("gpu", "train", "gpu", Needs(1, 1, 1))
    world.request("t", "train", "t")
    for number in range(MOST):
        world.request(f"e{number}", "evaluate")
        assert world.give_way() == {"t"}
        assert world.running == {"wide", "gpu", f"e{number}"}
        world.happens(Ended(f"e{number}"))
        assert world.running == {"wide", "gpu", "t"}
    world.request("e", "evaluate")
    world.request("f", "evaluate")
    assert world.giving_way == set()  # it did so often enough; the others are not small


def test_upkeep_gives_way_to_no_upkeep_and_not_where_there_is_room() -> None:
    world = World(Node(2))
    upkeep(world, "r")
    world.request("e", "evaluate")
    upkeep(world, "s")
    assert world.giving_way == set()


def test_what_a_person_asked_for_does_not_give_way() -> None:
    world = World(Node(1))
    upkeep(world, "r", asked=True)
    world.request("e", "evaluate")
    assert world.giving_way == set()
    other = World(Node(1))
    upkeep(other, "r")
    other.request("e", "evaluate")
    upkeep(other, "r", asked=True)  # the person comes later
    assert other.giving_way == set()


def test_nothing_gives_way_where_that_is_not_enough() -> None:
    world = World(Node(3))
    world.request("e", "evaluate")
    upkeep(world, "r")
    world.request("wide", "train", "wide", Needs(1, 3))
    assert world.giving_way == set()
    world.happens(Ended("e"))
    assert world.giving_way == {"r"}


def test_no_more_give_way_than_are_needed() -> None:
    world = World(Node(4))
    upkeep(world, "narrow")
    upkeep(world, "wide", needs=Needs(1, 3))
    world.request("t", "train", "t", Needs(1, 3))
    assert world.giving_way == {"wide"}


def test_a_mark_is_taken_back_when_nobody_waits_any_more() -> None:
    world = World(Node(2))
    upkeep(world, "r")
    world.request("e", "evaluate")
    world.request("f", "evaluate")
    assert world.giving_way == {"r"}
    world.happens(Ended("e"))
    assert world.running == {"r", "f"}
    assert world.giving_way == set()


def test_another_that_begins_meanwhile_is_not_told_too() -> None:
    world = World(Node(2), Node(2))
    for number in range(3):
        world.request(f"e{number}", "evaluate")
    upkeep(world, "r")
    world.request("f", "evaluate")
    assert world.giving_way == {"r"}
    world.happens(NodesChanged((Node(2), Node(2), Node(1))))
    assert world.running >= {"f", "r"}
    upkeep(world, "s")
    assert world.giving_way == set()


def test_a_training_beyond_its_users_minutes_gives_way_to_whoever_is_within_theirs() -> None:
    world = World(Node(1))
    world.request("a", "train", "a", user="ann")
    world.request("b", "train", "b", user="ben")
    assert world.giving_way == set()
    world.happens(MinutesTaken(frozenset({"ann", "ben"})))
    assert world.giving_way == set()  # neither is better than the other
    world.happens(MinutesTaken(frozenset({"ann"})))
    world.request("e", "evaluate", user="ann")
    assert world.give_way() == {"a"}  # to ben's, who waits behind an evaluation of ann's own
    assert world.running == {"e"}  # which goes first
    world.happens(Ended("e"))
    assert world.running == {"b"}
    assert world.state.runs["a"].deaths == 0
    world.request("more", "train", "more", user="ben")
    world.happens(Ended("b"))
    assert world.running == {"more"}  # though ann asked before
    world.happens(Ended("more"))
    assert world.running == {"a"}
    upkeep(world, "r")
    assert world.giving_way == set()


def test_upkeep_gives_way_before_any_training() -> None:
    world = World(Node(2))
    world.request("a", "train", "a", user="ann")
    upkeep(world, "r")
    world.happens(MinutesTaken(frozenset({"ann"})))
    world.request("b", "train", "b", user="ben")
    assert world.giving_way == {"r"}


def test_on_several_nodes_the_place_of_a_worker_is_one_piece() -> None:
    room = (Node(2), Node(2))
    world = World(*room)
    upkeep(world, "r", "s")
    world.request("e", "evaluate")
    world.request("f", "evaluate")
    world.happens(NodesChanged(room, (Node(0), Node(0))))
    world.request("wide", "train", "wide", Needs(1, 2))
    assert world.giving_way == set()  # r and s may be on two nodes
    world.request("g", "evaluate")
    assert world.giving_way == {"s"}


def test_a_run_gives_way_so_many_times_and_dies_as_often_as_before() -> None:
    world = World(Node(1))
    upkeep(world, "r")
    for number in range(MOST):
        world.request(f"e{number}", "evaluate")
        assert world.give_way() == {"r"}
        world.happens(Ended(f"e{number}"))
        assert world.running == {"r"}
    world.request("e", "evaluate")
    assert world.giving_way == set()
    world.happens(Died("r", "killed"))
    assert world.state.runs["r"].deaths == 1


def test_upkeep_ends_beside_a_stream_of_what_people_wait_for() -> None:
    world = World(Node(1))
    upkeep(world, "r")
    passed, numbers = 0, itertools.count()
    for _ in range(2):
        world.request(f"e{next(numbers)}", "evaluate")
    while not (world.running == {"r"} and not world.giving_way):
        if not world.give_way():
            world.happens(Ended(min(world.running)))
            world.request(f"e{next(numbers)}", "evaluate")
            passed += 1
        assert passed <= (MAX_BYPASSES + 1) * MOST
    assert world.state.runs["r"].gave_way == MOST


# -- anything that may be there

needs = st.builds(Needs, st.integers(1, 2), st.integers(1, 3), st.integers(0, 1))
runs = st.builds(
    lambda kind, needs, urgency, state, user, gave_way: (
        kind,
        needs,
        urgency,
        state,
        user,
        gave_way,
    ),
    st.sampled_from(["refresh", "measure", "fit"]),
    needs,
    st.sampled_from(list(Urgency)),
    st.sampled_from([RunState.RUNNING, RunState.QUEUED, RunState.FAILED]),
    st.sampled_from([None, "ann", "ben"]),
    st.integers(0, MOST),
)
held = st.integers(0, 2)  # by serving
rooms = st.lists(
    st.builds(Node, st.integers(2, 6), st.integers(2, 3), held, held), min_size=1, max_size=2
)


@given(rooms, st.lists(runs, max_size=8), st.booleans(), st.sets(st.sampled_from(["ann", "ben"])))
@settings(max_examples=5 * budget(60), deadline=None)
def test_whatever_is_there(nodes: list[Node], made: list, knows: bool, over: set[str]) -> None:
    free = tuple(Node(one.cpus - one.held_cpus, one.gpus - one.held_gpus) for one in nodes)
    state = State("base", tuple(nodes), free if knows else (), over=frozenset(over))
    for number, (kind, wants, urgency, is_now, user, gave_way) in enumerate(made):
        run = PlannedRun(f"{number}", kind, number, None, wants, urgency, is_now, user=user)
        run.gave_way = gave_way
        state.runs[run.run_id] = run
    chosen = giving_way(state)
    for run in chosen:
        assert run.state == RunState.RUNNING
        assert run.urgency != Urgency.AWAITED
        if run.urgency == Urgency.UPKEEP:
            assert run.user is None
        if run.urgency == Urgency.UPKEEP or run.user not in over:
            assert run.gave_way < MOST
        run.gives_way = True
    if chosen:
        given = [run.needs for run in chosen]
        waits = [run for run in in_turn(state) if run.urgency != Urgency.UPKEEP]
        assert any(has_room(state, run.needs, given, ()) for run in waits)
        assert not all(  # somebody waits who has no room without one of them
            has_room(state, run.needs, given[1:], state.free) for run in waits
        )
    assert {run.run_id for run in giving_way(state)} == {run.run_id for run in chosen}
