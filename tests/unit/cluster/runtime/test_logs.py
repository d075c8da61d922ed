"""The log says what happened, to which run, whose; no line is lost when many processes write."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.domain.outcomes import Raised
from cluster.runtime import logs
from cluster.runtime.logs import log_to
from tacl.errors import NameTaken
from tests.support.fakes import ADMIN, Scene, submission

LINES = 300


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The handlers of a test go with it."""
    before = logging.getLogger().handlers[:]
    yield tmp_path / "logs"
    for handler in set(logging.getLogger().handlers) - set(before):
        logging.getLogger().removeHandler(handler)
        handler.close()


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    files = sorted(folder.glob(f"{name}.log*"), reverse=True)
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def test_what_became_of_a_task(tmp_path: Path, folder: Path) -> None:
    log_to(folder, "coordinator")
    log_to(folder, "coordinator")  # harmless
    scene = Scene(tmp_path / "home")
    scene.submit("digits")
    run_id = scene.task("digits").run_id
    scene.finish("train", "digits")
    scene.submit("faces")
    with pytest.raises(NameTaken):
        scene.coordinator.submit(
            ADMIN, submission(scene.home, "faces").model_copy(update={"request_id": "other"})
        )
    scene.end(Raised("ValueError: no", trace="at line 3"), "train", "faces")
    found = lines(folder, "coordinator")
    mine = [line for line in found if line.get("run_id") == run_id]
    assert [line["message"] for line in mine] == ["accepted", "placed", "ended"]
    assert {(line["task"], line["user"]) for line in mine} == {("digits", "tester")}
    assert mine[0]["request_id"] == "submit digits"
    (refused,) = (line for line in found if line["message"] == "refused")
    assert (refused["error"], refused["request_id"]) == ("NameTaken", "other")
    ended = [line for line in found if line.get("task") == "faces"][-2:]
    assert [line["message"] for line in ended] == ["raised", "failed"]
    assert ended[0]["trace"] == "at line 3"


def test_a_log_that_cannot_be_written_stops_nothing(folder: Path) -> None:
    log_to(folder, "coordinator")
    log = logging.getLogger("cluster.coordinator")
    shutil.rmtree(folder)
    log.info("first")
    assert [line["message"] for line in lines(folder, "coordinator")] == ["first"]
    shutil.rmtree(folder)
    folder.touch()
    log.info("second")  # as where the disk is away
    folder.unlink()
    log.info("third")
    assert [line["message"] for line in lines(folder, "coordinator")] == ["third"]


def test_many_processes_write_one_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "BYTES", 4000)
    monkeypatch.setattr(logs, "KEPT", 100)
    folder.mkdir()
    children = []
    for child in range(3):
        if (pid := os.fork()) == 0:
            try:
                log_to(folder, "learners")
                while not (folder / "go").exists():  # all at once
                    pass
                for line in range(LINES):
                    logging.getLogger("cluster.x").info("line", extra={"run_id": f"{child} {line}"})
            finally:
                os._exit(0)
        children.append(pid)
    (folder / "go").touch()
    for pid in children:
        os.waitpid(pid, 0)
    assert len(list(folder.glob("learners.log.*"))) > 3
    written = [line["run_id"] for line in lines(folder, "learners")]
    assert sorted(written) == sorted(f"{c} {n}" for c in range(3) for n in range(LINES))


def test_what_a_process_writes_from_then_on_is_its_owners(folder: Path) -> None:
    """Also where another program started it, as on the nodes of a joined cluster."""
    if (pid := os.fork()) == 0:
        try:
            os.umask(0o022)
            log_to(folder, "learners")
            (folder / "below").mkdir()
            (folder / "below" / "checkpoint").touch()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    modes = [(folder / name).stat().st_mode & 0o777 for name in ("below", "below/checkpoint")]
    assert modes == [0o700, 0o600]


def test_libraries_are_heard_when_they_warn(folder: Path) -> None:
    log_to(folder, "serving")
    logging.getLogger("somebody").info("chatter")
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("somebody").exception("trouble")
    (line,) = lines(folder, "serving")
    assert (line["message"], line["level"]) == ("trouble", "ERROR")
    assert "ValueError: no" in line["trace"]
