"""The head on a real Ray cluster of this machine: one story in which processes are killed, and the
trace of a run by those that are there then."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster import tracing
from cluster.domain.base import RequestContext
from cluster.domain.status import TaskStatus
from cluster.errors import exit_code
from cluster.registry import Registry
from cluster.runtime import head
from cluster.runtime.connection import leave
from cluster.runtime.head import generic_shard, sessions
from cluster.storage.blobs import Blobs
from cluster.storage.home import Home, Running, write
from cluster.storage.samples import probe_inputs, training_inputs
from tacl.errors import BadConfig, BaseNotFound, HomeInUse
from tests.support.collector import Collector, collecting
from tests.support.fakes import ADMIN, new_home, submission
from tests.support.places import ROOT

LEARNER = "tests.support.fake_learner:FakeLearner"


def sentences(folder: Path) -> Path:
    file = folder / "generic.jsonl"
    file.write_text("".join(json.dumps({"text": f"sentence {row}"}) + "\n" for row in range(80)))
    return file


def start_head(home: Home, *options: str, learner: str = LEARNER) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "cluster.runtime.head",
        "--home",
        str(home.path),
        "--cpus",
        "2",
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),  # the fake learner is found by Ray's workers too
        "RAY_worker_niceness": "0",  # the tests of a busy machine should not wait for it
    }
    return subprocess.Popen(
        [*command, "--learner", learner, *options],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # As `tacl up` starts it: learners give way within their own session alone.
        start_new_session=True,
    )


def processes(home: Home) -> dict[int, str]:
    """Everything that runs for a home, by pid: they all inherit the path of its token."""
    marked = f"RAY_AUTH_TOKEN_PATH={home.token_file}\0".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marked in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it ended while we looked, or is somebody else's
    return found


def pids(home: Home, title: str) -> list[int]:
    """Of the actors of a class."""
    return [pid for pid, found in processes(home).items() if f"ray::{title}" in found]


def listening(home: Home) -> set[str]:
    """The interfaces on which the processes of a home listen."""
    found = [psutil.Process(pid).net_connections("inet") for pid in processes(home)]
    ports = [port for ports in found for port in ports if port.status == psutil.CONN_LISTEN]
    assert len(ports) > 3
    return {port.laddr.ip.removeprefix("::ffff:") for port in ports}


def require_closed(home: Home) -> None:
    """Ray has no process that TACL does not need, shows nobody else its files, and answers nobody
    without the home's token."""
    import grpc
    from ray.core.generated.gcs_service_pb2 import CheckAliveRequest  # pyright: ignore
    from ray.core.generated.gcs_service_pb2_grpc import NodeInfoGcsServiceStub

    head = home.running()
    assert head is not None
    commands = " ".join(processes(home).values())
    assert "gcs/gcs_server" in commands
    assert not any(one in commands for one in ("log_monitor.py", "autoscaler/_private/monitor.py"))
    assert f"--temp-dir={sessions()}" in commands
    assert sessions().parent.stat().st_mode & 0o077 == 0
    with grpc.insecure_channel(head.address) as channel, pytest.raises(grpc.RpcError) as refused:
        NodeInfoGcsServiceStub(channel).CheckAlive(CheckAliveRequest(), timeout=10)
    assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
    assert listening(home) == {"127.0.0.1"}


def until(condition: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s until {what}"
        time.sleep(0.2)
    return found


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    """Of what every process of `home` tells of its runs."""
    with collecting() as found, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")  # milliseconds
        patch.setenv(tracing.ENDPOINT, found.endpoint)
        yield found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Home]:
    """A home with a running cluster; nothing of it runs afterwards."""
    home = Home((folder := tmp_path_factory.mktemp("head")) / "home")
    process = start_head(home, "--base", "fake:encoder", "--generic", str(sentences(folder)))
    try:
        until(lambda: home.running() or process.poll() is not None, "the head is ready", 240)
        assert home.running(), process.communicate()[0]
        yield home
    finally:
        leave(home)  # Ray ends a process that lost its cluster a minute later: these tests
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=120)[0]
    assert process.returncode == 0, said
    assert "stopping" in said.splitlines()  # Ray may still tell of the killed processes after it
    assert home.running() is None
    assert not home.running_file.exists()
    until(lambda: not processes(home), f"nothing is left running: {processes(home)}", 60)
    assert not readable_by_others(home.path)


def readable_by_others(folder: Path) -> list[Path]:
    """What another user of the machine could read, by its own mode, not only by the folder's."""
    found = [folder, *folder.rglob("*")]
    return [path for path in found if path.lstat().st_mode & 0o077 and not path.is_symlink()]


@pytest.mark.ray
@pytest.mark.timeout(600)  # in a new environment Ray may take minutes to start
def test_kills_lose_nothing(home: Home) -> None:
    from cluster.runtime.home_coordinator import coordinator_of

    api, context = coordinator_of(home), RequestContext()

    def tasks() -> dict[str, TaskStatus]:
        return {task.name: task for task in api.status(context).tasks}

    require_closed(home)
    assert api.cluster().cpus == 2
    accepted = {name: api.submit(context, submission(home, name)) for name in ("a", "b", "c")}
    until(lambda: (tasks()["a"].step or 0) > 2, "a trains")
    assert tasks()["c"].state == "queued"

    (coordinator,) = pids(home, "WatchedCoordinator") or pids(home, "coordinator")
    learners = pids(home, "LearnerProcess")
    assert len(learners) == 2
    for end in (signal.SIGSTOP, signal.SIGKILL):
        os.kill(coordinator, end)
        assert api.logs(context, "a")[0].kind == "submitted"  # this question waits for none
    assert list(tasks()) == ["a", "b", "c"]  # this one waits for the next coordinator
    assert api.submit(context, submission(home, "a")) == accepted["a"]
    assert pids(home, "LearnerProcess") == learners
    os.kill(learners[0], signal.SIGKILL)
    until(lambda: all(task.state == "ready" for task in tasks().values()), "all are ready")
    until(lambda: not api.status(context).work, "nothing is owed")
    assert {task.version for task in tasks().values()} == {1}
    attempts = {name: task.attempt for name, task in tasks().items()}
    assert sorted(attempts.values()) == [1, 1, 2], attempts
    kinds = [event.kind for name in "ab" for event in api.logs(context, name)]
    assert kinds.count("died") == 1
    matrix = api.interference(context)
    assert matrix.on == ("generic", "a", "b", "c")
    assert matrix.missing == 0

    other = start_head(home)
    said = other.communicate(timeout=60)[0]
    assert other.returncode == exit_code(HomeInUse(""))
    assert str(home.running().pid) in said.splitlines()[-1]  # type: ignore[union-attr]


@pytest.mark.ray
def test_a_run_on_ray_is_one_trace(home: Home, collector: Collector) -> None:
    """Every process sends its part of it."""
    from cluster.runtime.home_coordinator import coordinator_of

    run_id = coordinator_of(home).submit(ADMIN, submission(home, "digits")).run_id
    _, of_trace, of_span, _ = tracing.of_run(run_id).split("-")

    def below() -> set[str]:
        spans = list(collector.spans)
        return {one.name for one in spans if (one.trace, one.parent) == (of_trace, of_span)}

    until(lambda: below() >= {"train", "publish"}, "learner and coordinator told their parts")
    until(lambda: any((one.name, one.id) == ("run", of_span) for one in collector.spans), "its end")
    submits = (one.facts for one in collector.spans if one.name == "submit")
    (submitted,) = (facts for facts in submits if facts["tacl.run_id"] == run_id)
    assert submitted == {"tacl.request_id": ADMIN.request_id, "tacl.run_id": run_id}


def fails(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and the last line said, of a head that does not start."""
    code = head.main(arguments)
    return code, capsys.readouterr().err.splitlines()[-1]


def test_a_first_start_needs_a_base_and_generic_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = fails(["--home", str(tmp_path)], capsys)
    assert code == exit_code(BadConfig(""))
    assert "--base" in said
    code, said = fails(["--home", str(tmp_path), "--base", "hf:somewhere"], capsys)
    assert code == exit_code(BadConfig(""))
    assert "--generic" in said


def test_a_home_keeps_its_base(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new_home(tmp_path)
    code, said = fails(["--home", str(tmp_path), "--base", "hf:another"], capsys)
    assert code == exit_code(HomeInUse(""))
    assert "fake:encoder" in said


def test_a_registry_of_another_version_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = new_home(tmp_path)
    Registry(home.registry_url).close()
    with sqlite3.connect(tmp_path / "registry.sqlite") as db:
        db.execute("UPDATE alembic_version SET version_num = '9999'")
    code, said = fails(["--home", str(tmp_path)], capsys)
    assert code == exit_code(BadConfig(""))
    assert "9999" in said


def test_an_error_of_the_base_arrives_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_: object) -> None:
        raise BaseNotFound("no encoder at\nhf:nowhere")

    monkeypatch.setattr(head, "serve", absent)
    code, said = fails(["--home", str(tmp_path)], capsys)
    assert (code, said) == (exit_code(BaseNotFound("")), "error: no encoder at hf:nowhere")


def test_a_killed_head_leaves_a_home_that_is_not_running(tmp_path: Path) -> None:
    home = new_home(tmp_path)
    write(home.running_file, Running(pid=os.getpid(), address="127.0.0.1:1", token="t"))
    assert home.running() is None  # nobody holds the lock
    with home.lock():
        assert home.running() is None
        with pytest.raises(HomeInUse, match="starting"), home.lock(patience=0.1):
            pass
        write(home.running_file, Running(pid=os.getpid(), address="127.0.0.1:1", token="t"))
        assert home.running() is not None
    assert home.running() is None


def test_generic_pictures_are_generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "GENERIC_ROWS", 100)
    blobs = Blobs(tmp_path)
    shard = generic_shard(blobs, "image", None)
    assert shard.rows == 100
    assert shard == generic_shard(blobs, "image", None)
    rows = [*training_inputs(blobs, shard), *probe_inputs(blobs, shard)]
    assert all(isinstance(row, bytes) and row.startswith(b"\x89PNG") for row in rows)
