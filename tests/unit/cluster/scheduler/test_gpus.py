"""Which part of a GPU measures, fits, evaluations and compositions have."""

from __future__ import annotations

import pytest

from cluster.domain.status import RunKind
from cluster.domain.tasks import Options
from cluster.scheduler.giving_way import MOST
from cluster.scheduler.gpus import allot
from cluster.scheduler.state import (
    ONE_CPU,
    Died,
    Ended,
    MatrixCell,
    Needs,
    Node,
    NodesChanged,
    PlannedRun,
    PlannedTask,
    Requested,
    Requeue,
    Start,
    State,
    Stop,
    Urgency,
)
from tests.support.world import World

KINDS: tuple[RunKind, ...] = ("measure", "fit", "evaluate", "compose")


def world_of(*nodes: Node, **parts: float) -> World:
    """Tasks with vectors that were trained with so much of a GPU."""
    world = World(Node(8, 8))
    for task, gpus in parts.items():
        options = Options(gpus_per_worker=gpus, refresh="never", heads="trained")
        world.trained(task, options=options)
    world.happens(NodesChanged(nodes))
    return world


def evaluate(world: World, run_id: str, *tasks: str, user: str = "ann") -> None:
    about = run_id, "evaluate", None, ONE_CPU, Urgency.AWAITED, user
    world.happens(Requested(*about, dict.fromkeys(tasks, "")))


def needs(world: World, run_id: str) -> Needs:
    return world.state.runs[run_id].needs


@pytest.mark.parametrize("kind", KINDS)
def test_each_has_the_largest_part_of_the_trainings_of_its_vectors(kind: RunKind) -> None:
    """Of a pair that is the vector's own task: the other gives rows alone."""
    world = world_of(Node(4, 2), half=0.5, none=0, eighth=0.125)
    state = world.state
    cells = (MatrixCell("eighth", "v", "half", "s"), MatrixCell("none", "v", "half", "s"))
    models = kind in ("evaluate", "compose")
    run = PlannedRun("r", kind, 9, cells=cells if kind == "measure" else ())
    run.model = dict.fromkeys(("none", "eighth"), "") if models else {}
    state.runs["r"] = run
    allot(state)
    assert run.needs == (ONE_CPU if kind == "fit" else Needs(1, 1, 0.125))


def test_a_fit_has_that_of_all_champions_that_it_is_of() -> None:
    world = World(Node(4, 2))
    world.trained("a", options=Options(gpus_per_worker=0.25))
    world.submit("b", Options(gpus_per_worker=0.5, share="none"))  # it teaches nothing
    world.publish("train b")
    fit = next(run for run in world.state.runs.values() if run.kind == "fit")
    assert fit.run_id in world.running
    assert fit.needs == Needs(1, 1, 0.25)


def test_it_computes_on_one_gpu_whatever_its_training_reserved() -> None:
    world = world_of(Node(4, 4), wide=4)
    evaluate(world, "e", "wide")
    assert Start("e", Needs(1, 1, 1)) in world.said


def test_without_one_or_where_none_was_asked_for_it_is_one_cpu() -> None:
    world = world_of(Node(4), a=1)
    evaluate(world, "e", "a")
    assert Start("e", ONE_CPU) in world.said
    world = world_of(Node(4, 2), a=0)
    evaluate(world, "e", "a")
    assert Start("e", ONE_CPU) in world.said


def test_what_serving_holds_is_not_waited_for() -> None:
    world = world_of(Node(4, 1, 0, 1), a=0.5)
    evaluate(world, "e", "a")
    assert Start("e", ONE_CPU) in world.said


def test_one_that_others_use_is_waited_for_and_it_is_said() -> None:
    world = world_of(Node(4, 1), a=1)
    evaluate(world, "e", "a")
    evaluate(world, "f", "a")
    assert world.why("f") == (
        "needs 1 CPU and 1 GPU, 3 of 4 CPUs free and 0 of 1 GPU free: an evaluation"
    )
    world.happens(Ended("e"))
    assert Start("f", Needs(1, 1, 1)) in world.said


def test_where_trainings_keep_all_of_them_nobody_waits_for_hours() -> None:
    """Neither does upkeep: heads of tasks without a GPU come after it."""
    world = world_of(Node(8, 2), a=1)
    world.request("wide", "train", "wide", Needs(2, 1, 1))
    world.request("m", "measure", needs=Needs(1, 1, 1))
    assert Start("m", ONE_CPU) in world.said
    evaluate(world, "e", "a")
    assert Start("e", ONE_CPU) in world.said


def test_where_a_gpu_has_no_cpu_beside_it_one_elsewhere_does() -> None:
    world = world_of(Node(4, 1), Node(4), a=1)
    world.request("wide", "train", "wide", Needs(2, 2, 0))
    world.happens(NodesChanged((Node(4, 1), Node(4)), (Node(0, 1), Node(4))))
    evaluate(world, "e", "a")
    assert Start("e", ONE_CPU) in world.said


def test_a_training_that_gave_way_often_enough_is_let_alone() -> None:
    world = world_of(Node(8, 1), a=1)
    world.request("t", "train", "t", Needs(1, 1, 1))
    for number in range(MOST):
        evaluate(world, f"e{number}", "a")
        assert world.give_way() == {"t"}
        assert Start(f"e{number}", Needs(1, 1, 1)) in world.said
        world.happens(Ended(f"e{number}"))
    evaluate(world, "e", "a")
    assert Start("e", ONE_CPU) in world.said
    assert world.running == {"t", "e"}


def test_one_that_waits_has_what_there_is_when_it_starts() -> None:
    gpu, cpu = Node(1, 1), Node(1)
    world = world_of(gpu, a=0.5)
    for run_id in "efg":
        evaluate(world, run_id, "a")
    assert needs(world, "f") == Needs(1, 1, 0.5)
    world.happens(Ended("e"))
    assert needs(world, "f") == Needs(1, 1, 0.5)
    world.state.nodes = ()  # it was lost with its process
    assert world.happens(Died("f", "gone")) == [Requeue("f", "gone")]
    assert Start("f", ONE_CPU) in world.happens(NodesChanged((cpu,)))
    assert needs(world, "g") == ONE_CPU
    assert Start("g", Needs(1, 1, 0.5)) in world.happens(NodesChanged((cpu, gpu)))
    assert needs(world, "f") == ONE_CPU  # it runs there


def test_one_whose_gpu_is_lost_before_it_was_there_does_not_wait_for_ever() -> None:
    """Ray would keep its place until there is such a node again."""
    world = world_of(Node(4, 1), Node(4), a=1)
    evaluate(world, "e", "a")
    said = world.happens(NodesChanged((Node(4),)))
    queued = Requeue("e", "no node has its GPU any more", died=False)
    assert said == [Stop("e"), queued, Start("e", ONE_CPU)]
    assert world.state.runs["e"].deaths == 0


def test_what_lost_its_process_with_its_node_goes_on_on_a_cpu() -> None:
    world = world_of(Node(4, 1), Node(4), a=1)
    evaluate(world, "e", "a")
    world.state.nodes = (Node(4),)
    assert Start("e", ONE_CPU) in world.happens(Died("e", "the node is gone"))


def test_a_training_whose_gpu_is_lost_is_let_alone() -> None:
    world = World(Node(4, 1))
    world.submit("a", Options(gpus_per_worker=1))
    assert world.happens(NodesChanged((Node(4),))) == []


def test_of_tasks_that_were_removed_nothing_is_known() -> None:
    state = State("base", (Node(4, 2),))
    state.tasks["there"] = PlannedTask(1, Options(gpus_per_worker=0.25), "shard")
    had = Needs(1, 1, 0.5)
    for name, tasks in (("some", ("gone", "there")), ("all", ("gone",))):
        model = dict.fromkeys(tasks, "")
        state.runs[name] = PlannedRun(name, "evaluate", 1, None, had, model=model)
    allot(state)
    assert state.runs["some"].needs == Needs(1, 1, 0.25)
    assert state.runs["all"].needs == had


def test_a_small_training_on_a_gpu_gives_way_to_what_needs_one_too() -> None:
    world = world_of(Node(1, 1), a=1, b=0)
    world.request("t", "train", "t", Needs(1, 1, 1))
    evaluate(world, "on a CPU", "b")
    assert world.giving_way == set()
    world = world_of(Node(2, 1), a=1)
    world.request("t", "train", "t", Needs(1, 1, 1))
    evaluate(world, "e", "a")
    assert world.giving_way == {"t"}
    world.give_way()
    assert Start("e", Needs(1, 1, 1)) in world.said
