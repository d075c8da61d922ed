"""One story on a real Ray cluster of this machine, as a person would live it: the command line.

Up, submit, the coordinator killed in the middle, wait, interference, models of two users, evaluate,
query, refresh, more samples, down, and up again: nothing is lost, and nothing is left running.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from cluster.client.client import Client
from cluster.errors import exit_code
from cluster.storage.home import Home
from jobs.cli.main import app
from tacl.errors import NameTaken
from tests.integration.test_head import pids
from tests.support import tiny
from tests.support.places import ROOT

Tacl = Callable[..., Any]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home whose cluster is stopped, whatever happens."""
    yield tmp_path / "home"
    Client(tmp_path / "home").down()


@pytest.fixture
def tacl(home: Path, monkeypatch: pytest.MonkeyPatch) -> Tacl:
    """`tacl ARGUMENTS --home HOME --json`, decoded; an error is its exit code."""
    monkeypatch.setenv("RAY_worker_niceness", "0")  # a busy machine need not wait for its tests

    def run(*arguments: object) -> Any:
        told = CliRunner().invoke(app, [*map(str, arguments), "--home", str(home), "--json"])
        return json.loads(told.stdout) if told.exit_code == 0 else told.exit_code

    return run


def family(pid: int) -> list[psutil.Process]:
    head = psutil.Process(pid)
    return [head, *head.children(recursive=True)]


def runs(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def until(condition: Callable[[], Any], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s until {what}"
        time.sleep(0.1)


def states(status: dict[str, Any]) -> dict[str, str]:
    return {task["name"]: task["state"] for task in status["tasks"]}


@pytest.mark.ray
@pytest.mark.timeout(1500)  # 100 s of one core, which others may share
def test_story(tacl: Tacl, home: Path, tmp_path: Path) -> None:
    generic = tiny.folder_of(tmp_path / "generic", task=99, rows=100)
    up = tacl("up", "--base", tiny.base(tmp_path), "--generic", generic, "--cpus", 2)
    assert (up["started"], up["modality"], up["generic_rows"]) == (True, "image", 100)
    at_start = family(up["pid"])

    trees = tiny.folder_of(tmp_path / "trees", task=1, rows=240)
    leaves = tiny.folder_of(tmp_path / "leaves", task=2, rows=240)
    for name, data in {"trees": trees, "leaves": leaves}.items():
        accepted = tacl("submit", name, "--data", data, "--steps", 60, "--refresh", "on_arrival")
        assert accepted["task"] == name
    assert tacl("submit", "trees", "--data", leaves) == exit_code(NameTaken(""))

    until(lambda: any(task["step"] for task in tacl("status")["tasks"]), "a task trains", 200)
    (coordinator,) = pids(Home(home), "WatchedCoordinator")
    os.kill(coordinator, signal.SIGKILL)
    assert states(tacl("status")).keys() == {"trees", "leaves"}  # of the next coordinator
    trained = tacl("wait")
    assert states(trained) == {"trees": "ready", "leaves": "ready"}
    assert trained["work"] == []
    assert {task["attempt"] for task in trained["tasks"]} == {1}  # learners outlive a coordinator
    for task in trained["tasks"]:
        assert task["step"] == task["steps"] == 60
        assert task["accuracy_after"] > 0.5, task

    both = _composed(tacl, trees / "birch" / "1.png")

    refreshed = tacl("refresh", "trees")
    assert len(tacl("vectors", "trees")) == 1 + refreshed["accepted"]
    more = tiny.folder_of(tmp_path / "more", task=1, rows=70, seed=7)
    grown = tacl("submit", "trees", "--add-samples", more)
    assert (grown["version"], grown["added"]) == (2, 70)
    before_down = tacl("wait")
    assert tacl("interference")["missing"] == 0

    started = [*at_start, *family(up["pid"])]
    assert tacl("down") == {"stopped": True}
    assert [one for one in started if runs(one)] == []

    assert typed(home, "up").startswith("the cluster runs: base model")
    assert tacl("status")["tasks"] == before_down["tasks"]
    assert tacl("evaluate", "alice") == both
    told = typed(home, "submit", "more", "--data", trees, "--again", "--steps", 20, "--watch")
    assert "images from column" in told
    assert "birch" in typed(home, "query", "alice", trees / "birch" / "1.png")
    assert typed(home, "down") == "the cluster is stopped\n"


OURS = re.compile(r"(starting the cluster|checking rows|more): .*")
FOREIGN = re.compile(r"raylet|gcs|pid=|deepspeed|warn|info|traceback|0x[0-9a-f]{4}", re.IGNORECASE)


def typed(home: Path, *words: object) -> str:
    """What `tacl WORDS` shows, as a process whose every library may write: its stdout. On stderr is
    its progress, and nothing of Ray, DeepSpeed or C++ is on either."""
    command = [sys.executable, "-m", "jobs.cli.main", *map(str, words), "--home", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if not OURS.fullmatch(line)] == []
    assert FOREIGN.findall(done.stdout + done.stderr) == [], done.stdout + done.stderr
    return done.stdout


def _composed(tacl: Tacl, picture: Path) -> Any:
    """Models of two users and what they answer; how good the first is."""
    matrix = tacl("interference", "--picture", picture.parent / "matrix.png")
    assert (matrix["on"], matrix["missing"]) == (["generic", "trees", "leaves"], 0)
    assert Path(matrix["picture"]).read_bytes().startswith(b"\x89PNG")

    alice = tacl("compose", "alice", "+trees", "+leaves")
    assert [term["coefficient"] for term in alice["terms"]] == [1, 1]
    tacl("compose", "bob", "+trees", "-leaves")
    both, less = tacl("evaluate", "alice"), tacl("evaluate", "bob")
    for name in ("trees", "leaves"):
        assert both["per_task"][name]["composed"] > 0.5, both
    fallen = [found["per_task"]["leaves"]["composed"] for found in (both, less)]
    assert fallen[1] < fallen[0] - 0.1, fallen

    asked = tacl("query", "alice", picture, "--task", "trees")
    ((_, ranked),) = asked["answers"][0].items()
    assert asked["digest"] == alice["digest"]
    assert {name for name, _ in ranked} == {"ash", "birch", "cedar", "date"}
    assert sum(share for _, share in ranked) == pytest.approx(1, abs=1e-5)
    assert tacl("query", "bob", picture)["best"][0]["task"] == "trees"  # leaves are subtracted
    return both
