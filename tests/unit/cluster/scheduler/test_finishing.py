"""About when runs will be done: by their pace, by what took how long, and by what goes first."""

from __future__ import annotations

import itertools

import pytest

from cluster.scheduler.finishing import HORIZON, LOOKS, Forecast, Steps, ends, rest
from cluster.scheduler.state import Ended, Needs, Node, PlannedRun
from tests.support.world import World


def seconds(**known: float):
    return lambda run: known.get(run.run_id)


def test_what_waits_starts_when_enough_comes_free_in_the_order_of_the_queue() -> None:
    world = World(Node(2))
    world.request("a", "train", "a")
    world.request("b", "train", "b")
    world.request("wide", "train", "wide", Needs(1, 2))
    world.request("c", "train", "c")
    world.request("e", "evaluate")
    found = ends(world.state, seconds(a=10, b=30, e=5, wide=100, c=1), 1000.0)
    assert found == {"a": 1010, "b": 1030, "e": 1015, "wide": 1130, "c": 1131}


def test_what_waits_for_what_nobody_knows_is_not_known() -> None:
    world = World(Node(1))
    for name in ("a", "b"):
        world.request(name, "train", name)
    assert ends(world.state, seconds(b=5), 0.0) == {}
    world.happens(Ended("a"))
    assert ends(world.state, seconds(b=5), 0.0) == {"b": 5}
    world.request("huge", "train", "huge", Needs(1, 9))
    world.request("c", "train", "c")
    assert ends(world.state, seconds(b=5, c=5, huge=1), 0.0) == {"b": 5, "c": 10}


def test_gpus_are_waited_for_too() -> None:
    world = World(Node(4, 1))
    for name in ("a", "b"):
        world.request(name, "train", name, Needs(1, 1, 1))
    assert ends(world.state, seconds(a=10, b=5), 0.0) == {"a": 10, "b": 15}


def test_of_a_long_queue_the_first_are_told() -> None:
    world = World(Node(1))
    for number in range(HORIZON + 9):
        world.request(f"r{number}", "refresh", f"{number}")
    found = ends(world.state, lambda run: 1.0, 0.0)
    assert len(found) == HORIZON + 1
    assert found["r0"] == 1
    assert found[f"r{HORIZON}"] == HORIZON + 1


def test_more_places_make_nothing_later() -> None:
    for counts in itertools.product((1, 2, 3), repeat=2):
        few, many = (World(Node(cpus)) for cpus in sorted(counts))
        for number, world in itertools.product(range(6), (few, many)):
            world.request(f"e{number}", "evaluate")
        least, most = (ends(one.state, lambda run: 3.0, 0.0) for one in (many, few))
        assert all(least[name] <= most[name] for name in most)


# -- how long runs take


@pytest.fixture
def world() -> World:
    world = World(Node(1))
    world.submit("a")
    world.submit("b")
    return world


def run(world: World, name: str) -> PlannedRun:
    return world.state.runs[name]


def test_a_run_that_tells_its_steps_goes_on_at_their_pace(world: World) -> None:
    forecast, a = Forecast(), run(world, "train a")
    forecast.begun("train a", 100.0)
    assert forecast.left(world.state, a, 100.0) is None
    forecast.stepped("train a", 10, 100, 110.0)
    assert forecast.left(world.state, a, 110.0) is None  # one look tells no pace
    forecast.stepped("train a", 30, 100, 120.0)
    assert forecast.left(world.state, a, 120.0) == pytest.approx(35.0)
    assert forecast.left(world.state, a, 125.0) == pytest.approx(30.0)
    forecast.begun("train a", 1000.0)  # again, from a checkpoint
    forecast.stepped("train a", 30, 100, 1010.0)
    assert forecast.left(world.state, a, 1010.0) is None


def timed(steps: int, *seconds: float) -> list[Steps]:
    """Looks at the first of so many steps, which took so many seconds each."""
    ends = itertools.accumulate(seconds, initial=0.0)
    return [Steps(at, done, steps) for done, at in enumerate(ends)]


@pytest.mark.parametrize(("before", "after"), [(1.0, 10.0), (10.0, 1.0)])
def test_what_was_before_a_machine_became_busy_or_idle_does_not_count(
    world: World, before: float, after: float
) -> None:
    forecast, a = Forecast(), run(world, "train a")
    forecast.begun("train a", 0.0)
    looks = timed(1000, *[before] * 300, *[after] * LOOKS)
    for look in looks:
        forecast.stepped("train a", look.done, look.of, look.at)
    left = (1000 - looks[-1].done) * after
    assert forecast.left(world.state, a, looks[-1].at) == pytest.approx(left)


def test_steps_that_stop_coming_make_the_rest_longer() -> None:
    looks = timed(103, 2.0, 2.0, 2.0)
    assert rest(looks, 6.0) == pytest.approx(200.0)
    assert rest(looks, 8.0) == pytest.approx(198.0)  # the next is awaited now
    later = [rest(looks, at) or 0.0 for at in (8.0, 14.0, 68.0)]
    assert later == sorted(later)
    assert later[-1] == pytest.approx(100 * (6 + 60) / 3 - 2)


def test_who_begins_to_count_something_else_has_no_pace_yet(world: World) -> None:
    forecast, a = Forecast(), run(world, "train a")
    forecast.begun("train a", 0.0)
    for at, done in enumerate((10, 20, 0)):
        forecast.stepped("train a", done, 100, float(at))
    assert forecast.left(world.state, a, 2.0) is None
    forecast.stepped("train a", 1, 100, 12.0)
    assert forecast.left(world.state, a, 12.0) == pytest.approx(990.0)


def test_others_take_what_the_latest_of_their_kind_took(world: World) -> None:
    forecast, a, b = Forecast(), run(world, "train a"), run(world, "train b")
    world.state.tasks["a"].allowance, world.state.tasks["b"].allowance = 100, 300
    assert forecast.left(world.state, b, 0.0) is None
    forecast.took(world.state, a, 50.0)
    assert forecast.left(world.state, b, 0.0) == pytest.approx(150.0)  # it is three times as large
    world.request("e", "evaluate")
    assert forecast.left(world.state, run(world, "e"), 0.0) is None
    forecast.begun("train a", 10.0)
    assert forecast.left(world.state, a, 30.0) == pytest.approx(30.0)
    assert forecast.left(world.state, a, 70.0) is None  # later than ever: nobody knows


def test_what_has_ended_is_remembered_and_what_was_lost_is_not(world: World) -> None:
    forecast, a, b = Forecast(), run(world, "train a"), run(world, "train b")
    forecast.begun("train a", 10.0)
    forecast.forget("train a")
    forecast.ended(world.state, a, 40.0)
    assert forecast.left(world.state, b, 0.0) is None
    forecast.begun("train a", 10.0)
    forecast.ended(world.state, a, 40.0)
    assert forecast.left(world.state, b, 0.0) == pytest.approx(30.0)
