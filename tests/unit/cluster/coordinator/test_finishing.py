"""What people are told of when their work will be done."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest

from cluster.domain.outcomes import Finished
from cluster.domain.status import Phase
from cluster.domain.work import Progress, RefreshWork
from cluster.scheduler.state import Node
from jobs.console.progress import described
from tests.support.fakes import ADMIN, Scene, asks, calm, refreshed, result_of


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the time is; seconds since 1970."""
    now = [time.time()]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


def test_a_training_and_what_waits_behind_it_have_a_time(
    tmp_path: Path, clock: list[float]
) -> None:
    scene = Scene(tmp_path, Node(1))
    scene.submit("first")
    clock[0] += 30
    scene.finish("train", "first")
    scene.settle()
    scene.submit("digits")
    begun = clock[0]
    scene.submit("shapes")
    run_id = scene.task("digits").run_id
    clock[0] += 2
    assert scene.task("shapes").expected == pytest.approx(begun + 30 + 30, abs=1)
    for step in (10, 30):  # 2 steps a second: 35 more seconds
        scene.known(run_id, step, Progress(step=step, steps=100, loss=1.0))
        clock[0] += 10
    now = clock[0]
    assert scene.task("digits").expected == pytest.approx(now - 10 + 35, abs=1)
    assert scene.task("shapes").expected == pytest.approx(now - 10 + 35 + 30, abs=1)
    assert scene.coordinator.task(ADMIN, "shapes").expected == scene.task("shapes").expected
    assert scene.coordinator.run(ADMIN, run_id).expected == scene.task("digits").expected
    assert scene.task("first").expected is None  # it is done


def test_a_training_that_starts_has_no_time_left(tmp_path: Path, clock: list[float]) -> None:
    """However long another one took."""
    scene = Scene(tmp_path, Node(1))
    scene.submit("first")
    clock[0] += 30
    scene.finish("train", "first")
    scene.settle()
    scene.submit("digits")
    clock[0] += 2
    assert described(scene.task("digits")) == "training, starting"
    run_id = scene.task("digits").run_id
    scene.coordinator.report_progress(run_id, Progress(phase=Phase.LOADING), 1)
    assert scene.task("digits").phase == Phase.LOADING
    assert described(scene.task("digits")) == "training, loading the base"
    scene.known(run_id, 0, Progress(step=0, steps=100))
    assert described(scene.task("digits")) == "training, step 0 of 100"
    scene.known(run_id, 1, Progress(step=1, steps=100))
    assert "step 1 of 100, 28 s left" in described(scene.task("digits"))
    scene.coordinator.report_progress(
        run_id, Progress(step=100, steps=100, loss=0.5, phase=Phase.MEASURING), 1
    )
    clock[0] += 2
    assert described(scene.task("digits")) == "training, measuring"
    assert scene.task("digits").loss == 0.5
    scene.finish("train", "digits")
    assert scene.task("digits").phase is None


def test_an_import_that_runs_has_the_time_of_the_last(tmp_path: Path, clock: list[float]) -> None:
    """It has no steps that would tell."""
    scene = Scene(tmp_path, Node(1))
    scene.submit("first", vector_blob=scene.home.blobs().put(b"first"))
    clock[0] += 30
    scene.finish("train", "first")
    scene.settle()
    scene.submit("second", vector_blob=scene.home.blobs().put(b"second"))
    begun = clock[0]
    clock[0] += 10
    assert scene.task("second").expected == pytest.approx(begun + 30, abs=1)


def test_the_next_coordinator_knows_how_long_things_took(
    tmp_path: Path, clock: list[float]
) -> None:
    scene = Scene(tmp_path, Node(1))
    scene.trained("digits")
    scene.coordinator.compose(asks("compose"), "alice", ["+digits"])
    scene.coordinator.evaluate(asks("one"), "alice")
    clock[0] += 40
    scene.finish("evaluate")
    scene.restart()
    run_id = scene.coordinator.evaluate(asks("two"), "alice", without=True).run_id
    assert scene.coordinator.run(ADMIN, run_id).expected == pytest.approx(clock[0] + 40, abs=1)


def test_a_task_that_was_removed_tells_the_next_coordinator_nothing(
    tmp_path: Path, clock: list[float]
) -> None:
    """How large it was is not known any more."""
    scene = Scene(tmp_path, Node(1))
    for name in ("digits", "shapes"):
        scene.submit(name)
        clock[0] += 30
        scene.finish("train", name)
        scene.settle()
    scene.coordinator.remove(asks("remove"), "shapes", purge=False)
    scene.restart()
    scene.submit("running")
    scene.submit("waiting")
    assert scene.task("waiting").expected == pytest.approx(clock[0] + 30 + 30, abs=1)


UNREADABLE = ({"norm": math.inf}, {"metrics": {"outside": math.nan}})


@pytest.mark.parametrize("changes", UNREADABLE)
def test_a_result_with_no_finite_norm_or_metrics_is_refused(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    scene = Scene(tmp_path)
    scene.submit("digits")
    good = result_of(scene.process("train").work, scene.home.blobs(), calm)
    scene.end(Finished(good.model_copy(update=changes)), "train")
    status = scene.task("digits")
    assert (status.state, status.version, status.metrics) == ("failed", None, {})
    assert "no finite number" in (status.reason or "")


def test_a_refresh_that_diverged_keeps_the_old_vector(tmp_path: Path) -> None:
    scene = Scene(tmp_path).trained("digits", "shapes")
    scene.coordinator.refresh(asks("again"), "digits")
    process = scene.process("refresh")
    assert isinstance(process.work, RefreshWork)
    kept = refreshed(process.work, scene.home.blobs(), calm, accepted=False)
    scene.end(Finished(kept.model_copy(update={"metrics": {"own_change": math.inf}})), "refresh")
    assert scene.coordinator.run(ADMIN, process.work.run_id).state == "done"
    assert scene.task("digits").version == 1
