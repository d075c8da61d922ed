"""When heads are fitted while trainings keep coming."""

from __future__ import annotations

from itertools import pairwise

from cluster.domain.tasks import Options
from cluster.scheduler.queue import MAX_BYPASSES
from cluster.scheduler.state import Ended, FitHeads, Node, Start
from cluster.scheduler.upkeep import BEFORE_FIT
from tests.support.world import World

FITTED = Options(refresh="never")


def end_one(world: World) -> str:
    """Let the run end that started first of those that run; returns its kind."""
    started = [said.run_id for said in world.said if isinstance(said, Start)]
    run = world.state.runs[next(run_id for run_id in started if run_id in world.running)]
    if run.kind == "train":
        world.publish(run.run_id, measured=False)
    elif run.kind == "measure":
        world.measure()
    else:
        world.happens(Ended(run.run_id))
    return run.kind


def test_heads_are_fitted_while_trainings_keep_coming() -> None:
    """Each vector that is published is measured, and a fit waits until vectors rest."""
    world = World(Node(2))
    for number in range(60):
        world.submit(f"t{number}", FITTED)
    kinds = list[str]()
    while kinds.count("train") < 60:
        kinds.append(end_one(world))
    since = longest = 0
    for kind in kinds:
        since = 0 if kind == "fit" else since + 1
        longest = max(longest, since)
    assert longest <= (BEFORE_FIT + 2) * (MAX_BYPASSES + 2)


def test_owners_of_private_tasks_take_turns_beside_open_tasks() -> None:
    world = World(Node(1))
    names = ["ann", "bob", "cid"]
    for name in names:
        world.submit(f"{name}.own", FITTED)
        world.state.owners[f"{name}.own"] = name
    for number in range(40):
        world.submit(f"t{number}", FITTED)
    while world.running:
        end_one(world)
    owners = [said.owner for said in world.said if isinstance(said, FitHeads)]
    assert {*owners[:8]} == {"", *names}
    assert not any(one == other == "" for one, other in pairwise(owners[:8]))
