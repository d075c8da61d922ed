"""What `tacl down` ends, and what it does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cluster.runtime.launch import stop
from cluster.storage.home import Home, Running, write
from tacl.errors import ClusterNotRunning
from tests.support.fakes import new_home


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
                stop(home)
            assert psutil.pid_exists(stranger.pid) == there
        finally:
            stranger.kill()
