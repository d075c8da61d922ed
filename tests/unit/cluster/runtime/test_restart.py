"""What is a lost cluster, and how soon it is started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.runtime import restart as runtime_again
from cluster.runtime.connection import connect
from cluster.runtime.launch import start
from cluster.runtime.restart import MAX_BACKOFF, STABLE_SECONDS, backoff, consecutive_losses, first
from cluster.runtime.watch import lost
from cluster.storage.home import Founding, Home, Running, write
from tacl.errors import ClusterNotRunning, HomeInUse
from tests.integration.test_head import until
from tests.support.fakes import new_home


def test_what_a_cluster_cannot_go_on_without() -> None:
    assert lost(gcs=True, raylet=True, coordinator=True) is None
    assert "GCS" in (lost(gcs=False, raylet=True, coordinator=True) or "")
    assert "raylet" in (lost(gcs=True, raylet=False, coordinator=True) or "")
    assert "coordinator" in (lost(gcs=True, raylet=True, coordinator=False) or "")


def test_losses_of_a_row_are_given_more_and_more_time() -> None:
    assert [backoff(number) for number in range(1, 6)] == [0, 1, 2, 4, 8]
    assert backoff(50) == MAX_BACKOFF
    # Ray ends the head after a minute without its control service, and what was started has to be
    # ended before.
    assert backoff(50) + 10 < 60
    assert (
        consecutive_losses(0, 1.0),
        consecutive_losses(6, 1.0),
        consecutive_losses(6, STABLE_SECONDS + 1),
    ) == (1, 7, 1)


def test_arguments_do_not_grow() -> None:
    assert first(["--home", "h", "--losses", "3", "--lock", "5"]) == ["--home", "h"]
    assert first(["--home", "h"]) == ["--home", "h"]


def test_a_cluster_that_is_being_started_again_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.runtime.launch.AGAIN_SECONDS", 0.2)
    home, said = new_home(tmp_path / "home"), []
    with home.lock():
        write(home.running_file, Running(pid=1, address="", token=None, lost="the raylet was lost"))
        with pytest.raises(ClusterNotRunning, match=r"started again \(the raylet was lost\)"):
            connect(home)
        with pytest.raises(ClusterNotRunning, match=r"could not be started again.*raylet"):
            start(home, Founding(), None, None, False, said.append)
    assert said == ["the cluster is being started again: the raylet was lost"]


HEAD = """
import os, sys
from pathlib import Path
from cluster.runtime.restart import restarter, first
from cluster.storage.home import Home
home, number = Home(Path(sys.argv[1])), int(sys.argv[3]) if "--losses" in sys.argv else 0
with home.lock(held=int(sys.argv[-1]) if number else None) as lock:
    print(os.getpid(), first(sys.argv[1:]), len(os.listdir("/dev/fd")), flush=True)
    if number == 3:
        sys.exit(7)
    os.set_inheritable(os.dup(1), True)  # as Ray leaves its connections
    command = [sys.executable, __file__, sys.argv[1]]
    restarter(home, lock, command, number, os.environ)("all is lost")
"""


def test_on_a_full_disk_it_is_started_again_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    def begun(program: str, words: list[str], environment: object) -> None:
        raise SystemExit(" ".join(words))

    monkeypatch.setattr(runtime_again, "write", full)
    monkeypatch.setattr("builtins.print", full)
    monkeypatch.setattr(runtime_again, "end", lambda *_, **__: None)
    monkeypatch.setattr(runtime_again, "_let_go_of_all_but", lambda lock: None)
    monkeypatch.setattr(os, "execve", begun)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    renew = runtime_again.restarter(new_home(tmp_path / "home"), 5, ["head"], 0, {})
    with pytest.raises(SystemExit, match="head --losses 1 --lock 5"):
        renew("the raylet was lost")


def test_it_begins_anew_as_the_same_process_and_nobody_else_serves_meanwhile(
    tmp_path: Path,
) -> None:
    home, script = new_home(tmp_path / "home"), tmp_path / "head.py"
    script.write_text(HEAD)
    process = subprocess.Popen(
        [sys.executable, script, home.path], stdout=subprocess.PIPE, text=True
    )
    until(lambda: (running := home.running()) and running.lost, "the loss is known")
    assert start_is_refused(home)
    said = process.communicate(timeout=60)[0].splitlines()
    assert process.returncode == 7, said
    assert said[1::2] == [f"all is lost; starting again in {seconds} s" for seconds in (0, 1, 2)]
    assert set(said[::2]) == {f"{process.pid} ['{home.path}'] 5"}


def start_is_refused(home: Home) -> bool:
    with pytest.raises(HomeInUse), home.lock(patience=0.1):
        pass
    return True
