"""What is due once a task is removed."""

from __future__ import annotations

from cluster.domain.tasks import GENERIC
from cluster.scheduler.plan import handle
from cluster.scheduler.state import Node, RefreshChampion, Removed, Stop
from tests.support.world import ON_ARRIVAL, World


def test_a_refresh_that_ends_with_a_removed_task_is_asked_for_again() -> None:
    """Against the tasks that are left; nothing else is looked at."""
    world = World(Node(4)).trained("a", options=ON_ARRIVAL)
    for task in "bc":
        world.submit(task)
    for task in "bc":
        world.publish(f"train {task}")
    while not (found := [one for one in world.said if isinstance(one, RefreshChampion)]):
        world.measure(0.9)
    (before,) = found
    assert {name for name, _ in before.others} == {GENERIC, "b", "c"}
    world.state.ask.clear()
    said = handle(world.state, Removed("b", ()))
    assert Stop(before.run_id, forget=True) in said
    (after,) = (one for one in said if isinstance(one, RefreshChampion))
    assert {name for name, _ in after.others} == {GENERIC, "c"}
