"""The view that goes on: what is shown of one look, and how long what is owed still takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from cluster.domain.base import PAGE, RequestContext
from cluster.domain.status import ClusterStatus, Phase, RunState, TaskState, TaskStatus
from cluster.domain.work import Progress
from cluster.scheduler.state import Node
from jobs.cli.app import run_reporter
from jobs.console import live, progress
from jobs.console.live import fitting, shown, watch
from jobs.console.progress import counting, described, duration, lines, saying, stderr
from jobs.console.tables import Overview
from tests.support.fakes import Scene, asks


def look(scene: Scene, seconds: float | None) -> Overview:
    """At a training that is expected to be done so soon."""
    status = scene.coordinator.status(RequestContext())
    expected = seconds and time.time() + seconds + 0.1
    at = {"phase": None, "step": 40, "steps": 100, "expected": expected}
    tasks = tuple(one.model_copy(update=at) if one.is_owed else one for one in status.tasks)
    users = tuple(scene.coordinator.users(RequestContext()))
    return Overview.model_validate(dict(status) | {"tasks": tasks, "users": users})


def alone(scene: Scene, name: str) -> ClusterStatus:
    return scene.coordinator.status(RequestContext(), "", [name])


def untimed(one: TaskStatus) -> str:
    """Without the time that is left: how fast this machine is now says whether there is one."""
    return described(one.model_copy(update={"expected": None}))


def test_in_a_file_it_is_lines_on_stdout(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(tmp_path)
    scene.submit("faces")
    looks = iter([look(scene, None)])

    def until_it_ends() -> Overview:
        try:
            return next(looks)
        except StopIteration:
            raise KeyboardInterrupt from None

    with pytest.raises(KeyboardInterrupt):
        watch(until_it_ends)
    told = capsys.readouterr()
    assert told.out.startswith("faces: training, step 40 of 100")
    assert told.err == ""


def test_a_screen_is_drawn_anew_where_something_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the time that is left, which changes while nothing else does; or the screen itself."""
    scene = Scene(tmp_path)
    scene.submit("faces")
    idle, timed = look(scene, None), look(scene, 80.0)
    screen = Console(file=StringIO(), force_terminal=True, width=100, height=30)
    clock, drawn = [time.time()], list[int]()

    def looks() -> Iterator[Overview]:
        yield from (idle, idle, timed, timed)
        clock[0] += 2
        yield from (timed, timed)
        screen.width = 90
        yield from (timed, timed)

    each = enumerate(looks())
    number = 0

    def until_it_ends() -> Overview:
        nonlocal number
        try:
            number, found = next(each)
        except StopIteration:
            raise KeyboardInterrupt from None
        return found

    monkeypatch.setattr(live.tables, "console", lambda: screen)
    monkeypatch.setattr(live, "fitting", lambda *_: drawn.append(number) or Text())
    monkeypatch.setattr(live.time, "sleep", lambda _: None)
    monkeypatch.setattr(progress.time, "time", lambda: clock[0])
    with pytest.raises(KeyboardInterrupt):
        watch(until_it_ends)
    assert drawn == [0, 2, 4, 6]


def test_what_others_wrote_is_no_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reason with brackets is shown whole, and ends nothing."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(
        progress, "stderr", lambda: Console(stderr=True, force_terminal=True, width=200)
    )
    with counting("of [/x]") as count:
        count(1, 2)
    with saying("writing [/x]") as say:
        say("[type=missing]")
    assert "of [/x]" in capsys.readouterr().err


def test_a_line_is_a_line_however_long(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(tmp_path)
    scene.submit("faces")
    found = look(scene, None)
    task = found.tasks[0].model_copy(update={"reason": "because " * 60, "state": TaskState.QUEUED})
    lines(Console(width=40))(found.model_copy(update={"tasks": (task,)}))
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_what_is_owed_has_a_time_left_where_it_is_known(tmp_path) -> None:
    scene = Scene(tmp_path)
    scene.trained("digits")
    scene.coordinator.compose(asks("one"), "alice", ["+digits"])
    scene.submit("faces")
    console = Console(width=120, record=True)
    console.print(shown(look(scene, 180.0)))
    told = console.export_text()
    (line,) = [line for line in told.splitlines() if line.startswith("faces")]
    assert line.split()[1:5] == ["training", "40/100", "3", "min"]
    assert "alice: +digits@v1" in told
    console.print(shown(look(scene, None)))
    assert "left" not in console.export_text()


@pytest.mark.parametrize("width", [80, 160])  # of a narrow screen accuracies are another table
def test_a_screen_has_lines_for_what_is_owed_before_what_is_ready(tmp_path, width: int) -> None:
    scene = Scene(tmp_path)
    scene.trained("digits")
    scene.coordinator.compose(asks("one"), "alice", ["+digits"])
    scene.submit("faces")
    found = look(scene, 180.0)
    ready, training = (one for one in found.tasks)
    many = [ready.model_copy(update={"name": f"old{number}"}) for number in range(40)]
    found = found.model_copy(update={"tasks": (training, *many), "users": found.users * 30})
    console = Console(width=width, height=24, record=True)
    console.print(fitting(found, console), end="")
    told = console.export_text().splitlines()
    assert 20 <= len(told) <= 24
    words = [line.split(" ")[0] for line in told]
    assert {"faces", "old39"} <= set(words)
    assert "old0" not in words
    (more,) = (line for line in told if "more tasks" in line)
    shown_ones = {word for word in words if word.startswith("old")}
    assert int(more.split()[1]) == 40 - len(shown_ones)
    assert told[-3:] == ["and 24 more", "", "Ctrl-C ends this view"]
    found = found.model_copy(update={"users": found.users[:1] * PAGE})
    console.print(fitting(found, console))
    assert "and at least 44 more" in console.export_text()


def test_a_model_is_a_line_of_the_screen_however_many_vectors_it_has(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.trained("digits")
    scene.coordinator.compose(asks("one"), "alice", ["+digits"])
    found = look(scene, None)
    (alice,), (digits,) = found.users, found.tasks
    users = (alice.model_copy(update={"terms": alice.terms * 40}),) * 30
    tasks = tuple(digits.model_copy(update={"name": f"old{number}"}) for number in range(40))
    console = Console(width=80, height=24, record=True)
    found = found.model_copy(update={"tasks": tasks, "users": users})
    console.print(fitting(found, console), end="")
    told = console.export_text().splitlines()
    assert len(told) <= 24
    assert sum(line.startswith("alice: +digits@v1") for line in told) == 6
    assert sum(line.startswith("old") for line in told) > 1
    assert told[-3:] == ["and 24 more", "", "Ctrl-C ends this view"]


@pytest.mark.parametrize("height", [24, 10])
def test_other_work_leaves_lines_of_the_screen_to_tasks(tmp_path: Path, height: int) -> None:
    """What is owed of it goes first; and where there is hardly a line, it is not said that there is
    no task."""
    scene = Scene(tmp_path)
    scene.trained("digits")
    scene.coordinator.compose(asks("one"), "alice", ["+digits"])
    scene.coordinator.evaluate(asks("two"), "alice")
    found = look(scene, None)
    (evaluation,) = found.work
    failed = evaluation.model_copy(update={"state": RunState.FAILED, "reason": "no room"})
    found = found.model_copy(
        update={"tasks": found.tasks * 3, "work": (*[failed] * 30, evaluation)}
    )
    console = Console(width=80, height=height, record=True)
    console.print(fitting(found, console), end="")
    told = console.export_text().splitlines()
    assert sum(line.startswith("digits") for line in told) == (3 if height == 24 else 1)
    assert any(line.startswith("evaluating") and " running" in line for line in told)
    more = "and 28 more runs: tacl status" if height == 24 else "and 2 more tasks, 30 more runs: "
    assert any(line.startswith(more) for line in told)
    assert height < 24 or len(told) <= height


def test_what_is_told_of_a_run_has_the_time_that_is_left(tmp_path) -> None:
    scene = Scene(tmp_path)
    scene.submit("faces")
    (faces,) = look(scene, 35.0).tasks
    assert described(faces.model_copy(update={"loss": 1.0})).endswith(
        "step 40 of 100, loss 1.000, 35 s left"
    )
    (faces,) = look(scene, None).tasks
    assert " left" not in described(faces)
    (late,) = look(scene, -9.0).tasks  # longer than was expected: nobody knows
    assert " left" not in described(late)


def test_an_evaluation_counts_rows(tmp_path) -> None:
    scene = Scene(tmp_path)
    scene.trained("digits")
    scene.coordinator.compose(asks("one"), "alice", ["+digits"])
    scene.coordinator.evaluate(asks("two"), "alice")
    (evaluation,) = scene.status().work
    at = evaluation.model_copy(update={"step": 297, "steps": 397, "expected": None})
    assert described(at).endswith(", row 297 of 397")


def test_what_is_said_in_a_file_begins_with_what_is_done(capsys) -> None:
    with saying("evaluating") as say:
        say("running :fire: row 297 of 397")
    assert capsys.readouterr().err == "evaluating: running :fire: row 297 of 397\n"


def test_who_follows_a_task_sees_it_and_how_many_go_first(tmp_path) -> None:
    scene = Scene(tmp_path, Node(1))
    scene.trained("digits")
    scene.submit("faces")
    scene.submit("shapes")
    scene.submit("signs")
    found = alone(scene, "shapes")
    assert [untimed(one) for one in found.tasks] == ["queued, behind 1 other"]
    assert found.work == ()
    scene.coordinator.compose(asks("one"), "alice", ["+digits"])
    scene.coordinator.evaluate(asks("two"), "alice")
    (shapes,) = alone(scene, "shapes").tasks
    assert untimed(shapes) == "queued, behind 2 others"
    scene.launcher.room = ()
    scene.coordinator.tick()
    (shapes,) = alone(scene, "shapes").tasks
    assert untimed(shapes).startswith("queued, needs 1 CPU; the cluster has")
    scene.launcher.room = (Node(1),)
    scene.coordinator.tick()
    (faces,) = alone(scene, "faces").tasks
    assert untimed(faces) == "training, starting"


def test_an_import_goes_before_trainings_and_behind_what_was_asked_for_before(tmp_path) -> None:
    scene = Scene(tmp_path, Node(1))
    scene.trained("digits")
    for name in ("runs", "trains"):
        scene.submit(name)
    scene.coordinator.compose(asks("one"), "alice", ["+digits"])
    scene.coordinator.evaluate(asks("two"), "alice")
    blob = scene.home.blobs().put(b"a vector from elsewhere")
    for name in ("first", "second"):
        scene.submit(name, vector_blob=blob)
    scene.coordinator.compose(asks("three"), "bob", ["-digits"])
    scene.coordinator.evaluate(asks("four"), "bob")
    told = {one.name: one for one in scene.status().tasks}
    behind = {name: untimed(alone(scene, name).tasks[0]) for name in told}
    assert behind["first"] == "queued, behind 2 others"  # the training that runs, an evaluation
    assert behind["second"] == "queued, behind 4 others"  # bob's turn is before another of root's
    assert behind["trains"] == "queued, behind 5 others"
    state = {"state": TaskState.TRAINING}
    assert untimed(told["first"].model_copy(update=state)) == "importing"


def test_what_no_node_can_hold_goes_before_nobody(tmp_path) -> None:
    scene = Scene(tmp_path, Node(2))
    for name, workers in (("runs", 1), ("wide", 2), ("waits", 1), ("last", 1)):
        scene.submit(name, workers=workers)
    scene.launcher.room = (Node(1),)
    scene.coordinator.tick()
    (last,) = alone(scene, "last").tasks
    assert untimed(last) == "queued, behind 2 others"


def test_rows_that_are_counted_have_a_time_left(monkeypatch, capsys) -> None:
    now = 100.0
    monkeypatch.setattr("jobs.console.progress.time.monotonic", lambda: now)
    with counting("checking data[old]:fire:.csv") as count:  # no markup, and no picture
        count(100, 500)
        now = 110.0
        count(200, 500)
    told = capsys.readouterr().err
    assert told == "checking data[old]:fire:.csv: 200 of 500, 30 s left\n"


def test_a_file_gets_a_line_of_a_run_when_its_state_changes_and_then_now_and_again(
    tmp_path, monkeypatch
) -> None:
    scene, told, now = Scene(tmp_path), list[str](), 100.0
    scene.submit("faces")
    monkeypatch.setattr("jobs.cli.app.time.monotonic", lambda: now)
    tell = run_reporter(told.append)
    for left in (9.0, 8.0, 7.0):
        tell(look(scene, left).tasks[0])
        now += 1.0
    now += 5.0
    tell(look(scene, 2.0).tasks[0])
    assert [line.rpartition(", ")[2] for line in told] == ["9 s left", "2 s left"]
    tell(look(scene, 2.0).tasks[0].model_copy(update={"state": TaskState.QUEUED}))
    assert [line.partition(",")[0] for line in told] == ["training", "training", "queued"]


def test_a_file_gets_a_line_with_each_phase(tmp_path, capsys) -> None:
    scene = Scene(tmp_path)
    scene.submit("faces")
    tell, run_id = lines(stderr()), scene.task("faces").run_id
    tell(scene.status())
    for phase in (Phase.LOADING, Phase.LOADING, Phase.HEAD):
        scene.coordinator.report_progress(run_id, Progress(phase=phase), 1)
        tell(scene.status())
    said = ("starting", "loading the base", "making its head")
    assert capsys.readouterr().err.splitlines() == [f"faces: training, {one}" for one in said]


def test_durations() -> None:
    assert [duration(s) for s in (40, 180, 9000)] == ["40 s", "3 min", "2.5 h"]


def test_a_task_that_left_is_not_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(tmp_path)
    scene.submit("faces")
    tell = lines(Console(width=100))
    tell(scene.status())
    scene.coordinator.cancel(asks("cancel"), "faces")
    tell(scene.status())
    assert capsys.readouterr().out.splitlines()[-1] == "faces: gone"
