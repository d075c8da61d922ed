"""Starting and stopping the process behind a home, with a stand-in that has no Ray."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import ray

from cluster.client.client import Client
from cluster.errors import exit_code
from cluster.runtime import head, launch, restart
from cluster.storage.home import ANSWERS, Home, Running, write
from tacl.errors import BadConfig, BaseNotFound, ClusterNotRunning, DataNotFound, HomeInUse
from tests.support.fakes import BASE, new_home

LIVES = """
import os, signal, sys
from pathlib import Path
from cluster.storage.home import Home, Running, write
home = Home(Path(sys.argv[sys.argv.index("--home") + 1]))
print("loading the encoder", flush=True)
with home.lock():
    running = Running(pid=os.getpid(), address="127.0.0.1:1", token="t")
    write(home.running_file, running)
    signal.sigwait({signal.SIGTERM})
"""


def stand_in(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    for module in (launch, restart):
        monkeypatch.setattr(module, "HEAD", (sys.executable, "-c", code))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def test_up_and_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, LIVES)
    client = Client(new_home(tmp_path / "home").path)
    said: list[str] = []
    found = client.up(progress=said.append)
    try:
        assert (found.started, found.base) == (True, "fake:encoder")
        assert said in ([], ["loading the encoder"])
        assert alive(found.pid)
        second = client.up("fake:encoder")
        assert (second.started, second.pid) == (False, found.pid)
        with pytest.raises(HomeInUse, match="fake:encoder"):
            client.up("hf:other")
        for storage in (tmp_path / "elsewhere", "s3://bucket/prefix"):
            with pytest.raises(HomeInUse, match="has the storage in its own directory"):
                client.up(storage=storage)
    finally:
        assert client.down() is True
    assert not alive(found.pid)
    assert client.down() is False


def test_what_a_killed_head_left_is_not_taken_for_running(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.path.mkdir()
    write(home.running_file, Running(pid=1, address="127.0.0.1:1", token="t"))
    assert head.main(["--home", str(home.path)]) == exit_code(BadConfig(""))
    with home.lock():  # as a head that is starting
        assert home.running() is None


def test_the_error_of_a_start_is_raised_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    death = "import sys; print('some noise'); sys.exit(print('error: no weights at x') or 10)"
    stand_in(monkeypatch, death)
    said: list[str] = []
    with pytest.raises(BaseNotFound, match=r"^no weights at x$"):
        Client(tmp_path / "home").up("hf:x", "generic", progress=said.append)
    assert "no weights at x" not in " ".join(said)
    stand_in(monkeypatch, "1 / 0")
    with pytest.raises(ClusterNotRunning, match=r"exit 1.*ZeroDivisionError.*head\.log"):
        Client(tmp_path / "home").up("hf:x", "generic")


def test_generic_data_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataNotFound, match="nowhere"):
        Client(tmp_path / "home").up("hf:x", "./nowhere")
    assert not (tmp_path / "home").exists()


def test_generic_data_that_are_gone_keep_no_home_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were read when it was founded; `tacl init` has written where they were."""
    stand_in(monkeypatch, LIVES)
    home = new_home(tmp_path / "home")
    (home.path / ANSWERS).write_text(f'base = "fake:encoder"\ngeneric = "{tmp_path}/gone"\n')
    client = Client(home.path)
    assert client.up().started
    assert client.down()


def test_a_base_that_is_gone_is_the_same_however_its_place_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with the path that the home keeps. Another base is refused, whether it is there or not."""
    stand_in(monkeypatch, LIVES)
    monkeypatch.chdir(tmp_path)
    base = BASE.model_copy(update={"spec": f"hf:{tmp_path.resolve()}/gone"})
    client = Client(new_home(tmp_path / "home", base).path)
    for spec in (base.spec, "hf:./gone"):
        assert client.up(spec).started
        assert client.down()
    with pytest.raises(HomeInUse, match=r"has the base hf:/.*/gone; hf:/.*/other was asked for"):
        client.up("hf:./other")


def test_a_start_that_takes_too_long_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, "import time; time.sleep(60)")
    monkeypatch.setattr(launch, "START_SECONDS", 0.3)
    with pytest.raises(ClusterNotRunning, match=r"0 s.*head\.log"):
        Client(tmp_path / "home").up("hf:x", "generic")
    assert Home(tmp_path / "home").running() is None


def test_what_ray_opens_to_everybody_lies_where_nobody_else_may_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    path = head.sessions().parent
    assert path == head.sessions().parent
    assert path.stat().st_mode & 0o777 == 0o700
    path.chmod(0o755)
    with pytest.raises(BadConfig, match="only you may enter"):
        head.sessions()
    path.rmdir()
    path.symlink_to(tmp_path)
    with pytest.raises(BadConfig):
        head.sessions()
    path.unlink()
    path.write_text("a file")
    with pytest.raises(BadConfig, match="RAY_TMPDIR|only you may enter"):
        head.sessions()


def test_of_a_cluster_that_ended_in_order_ray_leaves_no_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    session, home = head.sessions() / "session_now", Home(tmp_path / "home")
    context = SimpleNamespace(gcs_address="127.0.0.1:1", get_session_name=lambda: session.name)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(head, "end", lambda family: None)
    monkeypatch.setattr(head, "_prepare_environment", lambda home: None)
    monkeypatch.setattr(head, "_start_ray", lambda cpus: session.mkdir(parents=True))
    other = head.sessions() / "session_of_another_home"
    other.mkdir(parents=True)
    with pytest.raises(OSError, match="why"), head._started(home, None):
        raise OSError("why")  # which Ray's logs tell perhaps
    assert session.is_dir()
    session.rmdir()
    with head._started(home, None):
        assert session.is_dir()
    assert not session.exists()
    assert other.is_dir()


@pytest.mark.parametrize("there", [True, False])
def test_a_process_of_that_number_that_is_no_head_is_left_alone(
    tmp_path: Path, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head is on another machine, which has the same home."""
    home = new_home(tmp_path / "home")
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(sleep) as stranger:
        try:
            if not there:
                stranger.kill()
                stranger.wait()
            write(home.running_file, Running(pid=stranger.pid, address="10.0.0.7:6379", token=None))
            monkeypatch.setattr(Home, "_locked", lambda self: True)
            with pytest.raises(ClusterNotRunning, match="another machine"):
                launch.stop(home)
            assert psutil.pid_exists(stranger.pid) == there
        finally:
            stranger.kill()


def test_what_another_head_says_is_no_error_of_this_one(tmp_path: Path) -> None:
    log = tmp_path / "head.log"
    log.write_text(f"{launch.FATAL}it is served by another cluster\nstarting the coordinator\n")
    assert str(launch._death(exit_code(HomeInUse("")), log)) == "it is served by another cluster"


def test_of_a_head_that_could_not_even_write_why_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "head.log"
    log.touch()
    assert "it said nothing" in str(launch._death(1, log))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    assert f"(exit 1): {tmp_path} is full. See {log}" in str(launch._death(1, log))
