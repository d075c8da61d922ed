"""Room: who starts, who waits, and what is said of it."""

from __future__ import annotations

import itertools

import pytest

from cluster.coordinator.views import room
from cluster.domain.status import RunKind, WaitsFor
from cluster.domain.tasks import Options
from cluster.scheduler.queue import MAX_BYPASSES, describe, free, in_order, needs_of, placeable
from cluster.scheduler.state import ONE_CPU, Ended, Failed, MinutesTaken, Needs, Node, NodesChanged
from tests.support.world import World


def test_runs_start_as_they_fit_in_order() -> None:
    world = World(Node(2))
    for task in ("a", "b", "c"):
        world.submit(task)
    assert world.running == {"train a", "train b"}
    assert world.why("train c") == "needs 1 CPU, 0 of 2 CPUs free: training a, training b"
    assert free(world.state) == Node(0, 0)
    world.happens(Failed("train a", "no"))
    assert world.running == {"train b", "train c"}


def test_a_group_waits_until_all_of_it_fits_and_keeps_its_place() -> None:
    world = World(Node(2), Node(2))
    world.submit("narrow")
    world.submit("wide", Options(workers=2, cpus_per_worker=2))
    world.submit("late")
    assert world.running == {"train narrow"}
    assert world.why("train wide") == "needs 2 workers of 2 CPUs, 3 of 4 CPUs free: training narrow"
    assert world.why("train late").startswith("waits for training wide, whose turn it is: needs 2")
    world.publish("train narrow")
    assert world.state_of("train wide") == "running"


def test_gpus_are_counted_too() -> None:
    world = World(Node(8, 1))
    world.submit("a", Options(gpus_per_worker=1))
    world.submit("b", Options(gpus_per_worker=1))
    assert world.running == {"train a"}
    assert "0 of 1 GPU free" in world.why("train b")


def test_what_waits_for_a_gpu_keeps_no_cpus_from_what_needs_none() -> None:
    """Room is kept of what it lacks alone, however late it is."""
    world = World(Node(3, 1))
    world.submit("a", Options(gpus_per_worker=1))
    world.submit("b", Options(gpus_per_worker=1))
    for number in range(MAX_BYPASSES + 3):
        world.request(f"evaluate {number}", "evaluate")
        assert f"evaluate {number}" in world.running
        world.happens(Ended(f"evaluate {number}"))
    world.request("one", "evaluate")
    world.request("other", "evaluate")
    assert world.running == {"train a", "one"}  # and one CPU is kept for b
    world.publish("train a")
    assert "train b" in world.running


def test_what_waits_for_a_gpu_in_one_piece_keeps_no_cpus_from_what_needs_none() -> None:
    world = World(Node(8, 2))
    for name in "abc":
        world.submit(name, Options(gpus_per_worker=0.625))
    for number in range(MAX_BYPASSES + 3):
        world.request(f"evaluate {number}", "evaluate")
        assert f"evaluate {number}" in world.running
        world.happens(Ended(f"evaluate {number}"))


def test_cpus_are_kept_on_the_nodes_whose_gpus_are_waited_for() -> None:
    nodes = (Node(8, 1), Node(8, 1))
    world = World(*nodes)
    world.happens(NodesChanged(nodes, nodes))
    world.submit("first", Options(gpus_per_worker=1))
    world.submit("late", Options(workers=2, cpus_per_worker=4, gpus_per_worker=1))
    for number in range(MAX_BYPASSES + 1):
        world.request(f"evaluate {number}", "evaluate")
        world.happens(Ended(f"evaluate {number}"))
        world.happens(NodesChanged(nodes, (Node(7, 0), Node(8, 1))))
    for number in range(7):
        world.request(f"compose {number}", "compose")
    passed = sum(run.startswith("compose") for run in world.running)
    assert passed > 0
    world.publish("train first")
    world.happens(NodesChanged(nodes, (Node(8 - passed, 1), Node(8, 1))))
    assert "train late" in world.running


def test_cpus_of_nodes_without_gpus_are_kept_for_nobody_who_waits_for_one() -> None:
    nodes = (Node(4, 1), Node(8))
    world = World(*nodes)
    world.happens(NodesChanged(nodes, nodes))
    world.submit("first", Options(cpus_per_worker=4, gpus_per_worker=1))
    world.submit("late", Options(cpus_per_worker=4, gpus_per_worker=1))
    for number in range(MAX_BYPASSES + 3):
        world.happens(NodesChanged(nodes, (Node(0, 0), Node(8))))
        world.request(f"evaluate {number}", "evaluate")
        assert f"evaluate {number}" in world.running
        world.happens(Ended(f"evaluate {number}"))


def test_one_that_is_late_behind_another_late_one_keeps_no_room() -> None:
    world = World(Node(8, 2))
    world.submit("a", Options(gpus_per_worker=1))
    world.submit("b", Options(workers=2, gpus_per_worker=1))
    number = itertools.count()

    def evaluate(times: int) -> None:
        for _ in range(times):
            run_id = f"evaluate {next(number)}"
            world.request(run_id, "evaluate")
            assert run_id in world.running
            world.happens(Ended(run_id))

    evaluate(MAX_BYPASSES + 1)
    world.request("r", "measure", needs=Needs(1, 1, 1))
    evaluate(2 * MAX_BYPASSES)
    assert world.running == {"train a"}
    assert world.why("r").startswith("waits for training b, whose turn it is")
    world.submit("c")
    assert world.why("train c").startswith("waits for training b, whose turn it is: needs 2")


def test_runs_share_a_gpu_as_far_as_it_goes() -> None:
    world = World(Node(8, 1))
    for name, part in {"a": 0.5, "b": 0.25, "c": 0.5, "d": 0.25}.items():
        world.submit(name, Options(gpus_per_worker=part))
    assert world.running == {"train a", "train b"}  # c is next, and nobody passes it
    assert world.why("train c").startswith("needs 1 CPU and 0.5 GPUs, 6 of 8 CPUs free and 0.25 of")
    world.publish("train b")
    assert "train c" in world.running
    assert "0 of 1 GPU free" in world.why("train d")


@pytest.mark.parametrize("wide", [0.625, 1])
def test_parts_of_several_gpus_are_no_room_for_what_needs_one(wide: float) -> None:
    world = World(Node(8, 3))
    for name in "abc":
        world.submit(name, Options(gpus_per_worker=0.625))
    world.submit("wide", Options(gpus_per_worker=wide))
    assert world.running == {"train a", "train b", "train c"}
    assert "5 of 8 CPUs free and 1.125 of 3 GPUs free in parts" in world.why("train wide")
    world.publish("train a")
    assert "train wide" in world.running
    world.submit("beside", Options(gpus_per_worker=0.375))
    assert "train beside" in world.running


def test_what_is_free_of_several_gpus_is_told_in_parts() -> None:
    world = World(Node(8, 2))
    world.submit("a", Options(gpus_per_worker=0.5))
    assert room(world.state).free_gpus == 1.5
    for number in (1.5, 0.3):
        with pytest.raises(ValueError, match="eighths of one"):
            Options(gpus_per_worker=number)
    with pytest.raises(ValueError, match="NCCL"):
        Options(gpus_per_worker=0.5, workers=2)


def test_short_work_does_not_wait_behind_a_queue_of_trainings() -> None:
    world = World(Node(1))
    for number in range(10):
        world.submit(f"t{number}")
    world.request("evaluation", "evaluate")
    world.happens(Failed("train t0", "no"))
    assert world.running == {"evaluation"}


def test_what_a_person_waits_for_goes_first_then_training_then_upkeep() -> None:
    world = World(Node(1))
    world.request("busy", "evaluate")
    kinds: dict[str, RunKind] = {"r": "refresh", "m": "measure", "t": "train", "u": "train"}
    for run_id, kind in kinds.items():
        world.request(run_id, kind, run_id)
    world.request("c", "compose")
    world.request("e", "evaluate")
    assert started(world) == ["busy", "c", "e", "t", "u", "r", "m"]


def test_a_refresh_that_somebody_asked_for_goes_as_a_training_does() -> None:
    world = World(Node(1))
    world.request("busy", "evaluate")
    for run_id in ("r", "s"):
        world.request(run_id, "refresh", run_id)
    world.request("t", "train", "t", user="ben")
    world.request("s", "refresh", "s", user="ann")
    assert started(world) == ["busy", "s", "t", "r"]


def started(world: World) -> list[str]:
    """One run after the other, until none is left."""
    order = list[str]()
    while world.running:
        (run_id,) = world.running
        order.append(run_id)
        world.happens(Ended(run_id))
    return order


def test_users_take_turns() -> None:
    world = World(Node(1))
    for number in range(4):
        world.request(f"a{number}", "train", f"a{number}", user="ann")
    world.request("b0", "train", "b0", user="ben")
    world.request("b1", "train", "b1", user="ben")
    world.request("c", "train", "c", user="cat")
    foretold = ["a0", *(run.run_id for run in in_order(world.state))]
    assert started(world) == ["a0", "b0", "c", "a1", "b1", "a2", "a3"] == foretold


def test_who_waited_before_a_restart_goes_first() -> None:
    world = World(Node(1))
    world.request("busy", "evaluate")
    world.request("a", "train", "a", user="ann")
    world.state.turns.clear()  # as a state that was read from the registry
    for number in range(3):
        world.request(f"n{number}", "train", f"n{number}", user=f"new {number}")
    world.happens(Ended("busy"))
    assert world.running == {"a"}


def test_who_comes_back_after_long_goes_behind_who_waits() -> None:
    world = World(Node(1))
    world.request("old", "train", "old", user="old")
    world.happens(Ended("old"))
    for number in range(3):
        world.request(f"b{number}", "train", f"b{number}", user="ben")
    world.request("new", "train", "new", user="new")
    world.request("back", "train", "back", user="old")
    assert started(world) == ["b0", "new", "back", "b1", "b2"]


def test_a_run_that_may_not_be_late_does_not_make_the_next_one_late() -> None:
    world = World(Node(2))
    world.happens(MinutesTaken(frozenset({"ann"})))
    world.request("e0", "evaluate", user="ben")
    world.request("wide", "train", "wide", Needs(1, 2), user="ann")
    for number in range(1, 2 * MAX_BYPASSES):
        world.request(f"e{number}", "evaluate", user="ben")
        world.happens(Ended(f"e{number - 1}"))
    world.request("fresh", "train", "fresh", Needs(1, 2), user="cat")
    world.request("q", "evaluate", user="ben")
    assert "q" in world.running


def test_questions_cost_nobody_their_turn_to_train() -> None:
    world = World(Node(1))
    world.request("b0", "train", "b0", user="ben")
    for number in range(1, 4):
        world.request(f"b{number}", "train", f"b{number}", user="ben")
    world.request("a", "train", "a", user="ann")
    world.request("e", "evaluate", user="ann")
    world.happens(Ended("b0"))
    assert world.running == {"e"}
    world.happens(Ended("e"))
    assert world.running == {"a"}


def test_a_wide_training_is_not_starved_by_people_who_come() -> None:
    world = World(Node(2))
    world.request("first", "train", "first", Needs(1, 2), user="ann")
    world.request("narrow", "train", "narrow", user="ben")
    world.request("wide", "train", "wide", Needs(1, 2), user="ann")
    for number in range(50):
        world.request(f"n{number}", "train", f"n{number}", user=f"new {number}")
        if "wide" in world.running:
            return
        world.happens(Ended(min(world.running)))
    pytest.fail("it never started")


def test_no_room_is_kept_for_who_took_their_minutes() -> None:
    """It would be given back as soon as another comes."""
    world = World(Node(2))
    world.happens(MinutesTaken(frozenset({"ann"})))
    world.request("e0", "evaluate", user="ben")
    world.request("wide", "train", "wide", Needs(1, 2), user="ann")
    for number in range(1, 3 * MAX_BYPASSES):
        world.request(f"e{number}", "evaluate", user="ben")
        assert f"e{number}" in world.running
        world.happens(Ended(f"e{number - 1}"))


def test_who_took_their_minutes_of_the_day_comes_last() -> None:
    world = World(Node(1))
    world.request("busy", "train", "busy")
    for name, user in (("a0", "ann"), ("a1", "ann"), ("b0", "ben"), ("b1", "ben")):
        world.request(name, "train", name, user=user)
    world.happens(MinutesTaken(frozenset({"ann"})))
    foretold = [run.run_id for run in in_order(world.state)]
    assert started(world) == ["busy", "b0", "b1", "a0", "a1"] == ["busy", *foretold]


def test_upkeep_is_not_starved_by_trainings() -> None:
    world = World(Node(1))
    world.request("t", "train", "t")
    world.request("r", "refresh", "r")
    for number in range(2 * MAX_BYPASSES):
        world.request(f"t{number}", "train", f"t{number}")
    passed = 0
    while "r" not in world.running:
        (run_id,) = world.running
        world.happens(Failed(run_id, "no"))
        passed += 1
    assert passed == MAX_BYPASSES + 1  # the one that ran already, and those that may pass


def test_short_work_lets_trainings_through() -> None:
    world = World(Node(1))
    world.request("e", "evaluate")
    world.submit("digits")
    for number in range(3 * MAX_BYPASSES):
        world.request(f"e{number}", "evaluate")
    passed = 0
    while "train digits" not in world.running:
        (run_id,) = world.running
        world.happens(Ended(run_id))
        passed += 1
    assert passed == MAX_BYPASSES + 1  # the one that ran already, and those that may pass
    world.submit("shapes")
    world.happens(Failed("train digits", "no"))
    assert "train shapes" not in world.running  # it is the others' turn again


def test_a_wide_training_is_not_starved_by_narrow_short_work() -> None:
    world = World(Node(2))
    world.request("e0", "evaluate")
    world.submit("wide", Options(cpus_per_worker=2, heads="trained"))
    numbers = itertools.count(1)
    for _ in range(50):
        world.request(f"e{next(numbers)}", "evaluate")
        if "train wide" in world.running:
            return
        world.happens(Ended(min(world.running)))
    pytest.fail("it never started")


def test_room_is_kept_and_said_so() -> None:
    world = World(Node(2))
    world.request("e", "evaluate")
    world.submit("wide", Options(cpus_per_worker=2, heads="trained"))
    for number in range(MAX_BYPASSES + 1):
        world.request(f"e{number}", "evaluate")
        if number < MAX_BYPASSES:
            world.happens(Ended(f"e{number}"))
    waiting = f"e{MAX_BYPASSES}"
    assert world.state_of(waiting) == "queued"
    assert world.why(waiting) == (
        "waits for training wide, whose turn it is: needs 2 CPUs, 1 of 2 CPUs free: an evaluation"
    )


def test_what_no_node_can_hold_keeps_nobody_waiting() -> None:
    world = World(Node(4))
    world.happens(NodesChanged((Node(1),)))
    world.submit("wide", Options(cpus_per_worker=4))
    world.submit("narrow")
    assert world.running == {"train narrow"}
    assert world.why("train wide") == "needs 4 CPUs; the cluster has 1 node: 1 CPU"
    world.publish("train narrow")
    world.happens(NodesChanged((Node(1), Node(4))))
    assert world.running == {"train wide"}


def test_what_is_free_in_pieces_is_not_enough() -> None:
    room = (Node(2), Node(2))
    world = World(*room)
    world.happens(NodesChanged(room, (Node(1), Node(1))))
    world.submit("wide", Options(cpus_per_worker=2, heads="trained"))
    assert world.running == set()
    assert world.why("train wide") == "needs 2 CPUs, free are 1 CPU; 1 CPU: it starts next"
    world.happens(NodesChanged(room, (Node(0), Node(2))))
    assert world.running == {"train wide"}


def test_what_was_started_has_no_room_left_until_the_next_look() -> None:
    room = (Node(2), Node(3))
    world = World(*room)
    world.happens(NodesChanged(room, room))
    world.submit("one", Options(cpus_per_worker=2, heads="trained"))
    world.submit("two", Options(cpus_per_worker=2, heads="trained"))
    world.submit("three")
    world.submit("four", Options(cpus_per_worker=1, heads="trained"))
    assert world.running == {"train one", "train two", "train three"}
    world.publish("train one")
    assert world.why("train four").startswith("needs 1 CPU, free are 0 CPUs; 0 CPUs: ")
    world.happens(NodesChanged(room, (Node(2), Node(0))))
    assert "train four" in world.running


def test_what_serving_holds_is_not_given_away() -> None:
    """Of 2 CPUs one is left: a second run would be said to run and have no process."""
    world = World(Node(2, held_cpus=1))
    for task in ("a", "b"):
        world.submit(task)
    assert world.running == {"train a"}
    assert free(world.state) == Node(0)
    assert world.waits_for("train b") == WaitsFor.ROOM
    assert world.why("train b") == "needs 1 CPU, 0 of 2 CPUs free: serving, training a"


def test_what_can_never_be_placed_beside_serving_is_said() -> None:
    world = World(Node(2))
    world.submit("narrow")
    world.submit("wide", Options(workers=2))
    assert world.waits_for("train wide") == WaitsFor.ROOM
    world.happens(NodesChanged((Node(2, held_cpus=1),)))
    assert world.waits_for("train wide") == WaitsFor.NODES
    assert world.why("train wide") == (
        "needs 2 workers of 1 CPU; the cluster has 1 node: 2 CPUs, of which serving holds 1 CPU"
    )
    world.happens(Failed("train narrow", "no"))
    world.submit("late")  # and it keeps nobody waiting
    assert world.running == {"train late"}
    world.happens(NodesChanged((Node(2),)))
    world.happens(Failed("train late", "no"))
    assert world.running == {"train wide"}


def test_one_node_is_believed_about_what_it_has_left() -> None:
    world = World(Node(2))
    world.happens(NodesChanged((Node(2),), (Node(0),)))
    world.submit("a")
    assert world.running == set()
    assert world.waits_for("train a") == WaitsFor.ROOM
    world.happens(NodesChanged((Node(2),), (Node(1),)))
    assert world.running == {"train a"}


def test_placeable() -> None:
    assert placeable([Node(2), Node(2)], Needs(2, 2))
    assert not placeable([Node(3), Node(1)], Needs(2, 2))
    assert placeable([Node(4, 2)], Needs(2, 1, 1))
    assert not placeable([Node(4, 2)], Needs(3, 1, 1))
    assert placeable([Node(4, 0.5)], Needs(1, 1, 0.5))
    assert not placeable([Node(4, 0.5)], Needs(1, 1, 1))
    assert not placeable([], ONE_CPU)
    assert describe([]) == "the cluster has 0 nodes: no room"


def test_needs() -> None:
    options = Options(workers=3, cpus_per_worker=2, gpus_per_worker=1)
    assert needs_of("train", options) == Needs(3, 2, 1)
    assert needs_of("refresh", options) == Needs(1, 2, 1)
    assert needs_of("train", Options(gpus_per_worker=0.125)) == Needs(1, 1, 0.125)
    assert needs_of("measure", options) == needs_of("evaluate", options) == ONE_CPU
