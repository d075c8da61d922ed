"""What other tasks' runs see of a task: samples, statistics, or nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cluster.coordinator.arrivals import is_met
from cluster.domain.base import BlobRef
from cluster.domain.tasks import GENERIC, Shard
from cluster.domain.work import TrainWork
from cluster.registry.erasure import LATER
from cluster.scheduler.state import Node, PlannedTask, SamplesArrived
from cluster.scheduler.upkeep import refresh_of
from tacl.errors import CorruptBlob, RunFailed
from tests.support.fakes import ADMIN, Scene
from tests.support.world import ON_ARRIVAL, World


def test_withheld_samples_are_known_by_their_statistics_only() -> None:
    blob = BlobRef(digest="d", rows=1)
    shard = Shard(task="a", ordinal=1, blob=blob)
    stated = shard.model_copy(update={"statistics": "s"})
    assert is_met(shard, "c")
    assert not is_met(shard, "c", withheld=True)
    assert is_met(stated, "c", withheld=True)


@pytest.mark.parametrize("share", ["none", "statistics"])
def test_nobody_else_is_measured_on_or_refreshed_against_withheld_samples(share: str) -> None:
    world = World(Node(2)).trained("a", "b", options=ON_ARRIVAL)
    withheld = ON_ARRIVAL.model_copy(update={"share": share})
    world.trained("w", options=withheld)
    state = world.state
    assert state.rows["a"].keys() == state.rows["b"].keys() == {GENERIC, "a", "b"}
    assert state.rows["w"].keys() == {GENERIC, "a", "b", "w"}
    world.happens(SamplesArrived("w", PlannedTask(3, withheld, "w 2")))
    assert [cell.on for run in state.runs.values() for cell in run.cells] == ["w"]
    world.measure(0.9)
    assert [name for name, _ in refresh_of(state, "a").others] == [GENERIC, "b"]
    assert [name for name, _ in refresh_of(state, "w").others] == [GENERIC, "a", "b"]
    world.submit("late", ON_ARRIVAL)
    world.publish("train late")
    world.measure(0.9)  # all of them disturb it
    due = {run.task: run.others for run in state.runs.values() if run.kind == "refresh"}
    assert due["a"] == {GENERIC, "b", "late"}
    assert due["w"] == {GENERIC, "a", "b", "late"}


def test_others_see_statistics_in_place_of_samples(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Node(3))
    scene.submit("digits")
    scene.submit("shapes", share="statistics")
    scene.submit("signs", share="none")
    runs = {w.submission.name: w.run_id for w in scene.running() if isinstance(w, TrainWork)}
    known = scene.known

    def seen(name: str, step: int) -> list[tuple[str, str | None]]:
        return [(shard.task, shard.statistics) for shard in known(runs[name], step)]

    assert seen("digits", 0) == [(GENERIC, None)]
    with pytest.raises(CorruptBlob):
        scene.coordinator.publish_statistics(runs["shapes"], "0" * 64, 1)
    blob = scene.home.blobs().put(b"statistics of shapes")
    scene.coordinator.publish_statistics(runs["shapes"], blob, 1)
    assert seen("digits", 0) == [(GENERIC, None)]  # as that step was told before
    assert seen("digits", 1) == [(GENERIC, None), ("shapes", blob)]
    assert seen("shapes", 0) == [(GENERIC, None), ("digits", None)]
    assert seen("signs", 0) == [(GENERIC, None), ("digits", None), ("shapes", blob)]
    with pytest.raises(RunFailed):
        scene.coordinator.publish_statistics(runs["shapes"], blob, 7)
    assert blob in scene.coordinator._registry.referenced()
    other = scene.home.blobs().put(b"statistics of shapes, with other last bits")
    scene.coordinator.publish_statistics(runs["shapes"], other, 1)
    assert scene.coordinator._registry.due_files(time.time() + 2 * LATER).keys() == {other}
    scene.restart()
    known = scene.known
    assert seen("digits", 1) == [(GENERIC, None), ("shapes", blob)]
    scene.settle()
    found = scene.coordinator.interference(ADMIN)
    assert found.missing == 0
    measured = {
        on: [row[column] is not None for row in found.raw] for column, on in enumerate(found.on)
    }
    assert measured["digits"] == [True, True, True]
    assert measured["shapes"] == [False, True, False]
    assert measured["signs"] == [False, False, True]
