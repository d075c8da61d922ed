"""The view that goes on: what is shown of one look, and how long runs still take."""

from __future__ import annotations

import pytest
from rich.console import Console

from cluster.domain.base import RequestContext
from jobs.console.live import Pace, duration, shown
from jobs.console.tables import Overview
from tests.support.fakes import Scene, asks


def look(scene: Scene, step: int | None) -> Overview:
    status = scene.coordinator.status(RequestContext())
    tasks = tuple(
        one.model_copy(update={"step": step, "steps": 100}) if one.is_owed else one
        for one in status.tasks
    )
    users = tuple(scene.coordinator.users(RequestContext()))
    return Overview.model_validate(dict(status) | {"tasks": tasks, "users": users})


def test_time_left_is_that_of_the_pace_since_the_first_look(tmp_path) -> None:
    scene = Scene(tmp_path)
    scene.trained("digits")
    scene.coordinator.compose(asks("one"), "alice", ["+digits"])
    scene.submit("faces")
    pace = Pace()
    assert pace.left(look(scene, None), 0.0) == []
    assert pace.left(look(scene, 10), 5.0) == []  # one look tells no pace
    ((one, seconds),) = pace.left(look(scene, 30), 15.0)
    assert (one.label, seconds) == ("faces", pytest.approx(35.0))
    console = Console(width=120, record=True)
    console.print(shown(look(scene, 40), pace, 20.0))
    told = console.export_text()
    assert "faces: 30 s left" in told
    assert "alice: +digits@v1" in told


def test_durations() -> None:
    assert [duration(s) for s in (40, 180, 9000)] == ["40 s", "3 min", "2.5 h"]
