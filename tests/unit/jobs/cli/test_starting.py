"""The command as a process: light, quick to help, and clear without a cluster."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

from tacl import __version__


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def test_the_command_line_is_light() -> None:
    heavy = "('torch', 'ray', 'datasets', 'pyarrow', 'numpy', 'pydantic', 'sqlalchemy')"
    done = run("-c", f"import sys, jobs.cli.main; print([m for m in {heavy} if m in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


def test_waiting_threads_leave_the_processor_to_others_unless_told_otherwise() -> None:
    told = "import os, jobs.cli.main; print(os.environ['GOMP_SPINCOUNT'])"
    assert run("-c", told).stdout == "1000\n"
    assert run("-c", told, GOMP_SPINCOUNT="7").stdout == "7\n"


def test_what_only_reads_imports_nothing_that_computes() -> None:
    heavy = "('torch', 'ray', 'datasets', 'pyarrow', 'numpy', 'matplotlib', 'sqlalchemy')"
    reads = "import cluster.client.client, cluster.runtime.local_socket, jobs.console.tables"
    done = run("-c", f"import sys; {reads}; print([m for m in {heavy} if m in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


def test_help_answers_at_once() -> None:
    run("-m", "jobs.cli.main", "--help")  # compiles
    # About 0.2 s of a processor; of some tries, since other work slows its caches down.
    assert any(processor_seconds_of_help() < 0.6 for _ in range(4))


def processor_seconds_of_help() -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run("-m", "jobs.cli.main", "--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0
    assert "submit" in done.stdout
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_version() -> None:
    done = run("-m", "jobs.cli.main", "--version")
    assert (done.returncode, done.stdout) == (0, f"tacl {__version__}\n")


def test_without_a_home_every_command_says_the_same(tmp_path: Path) -> None:
    for verb in (["status"], ["query", "alice", "hi"], ["backup", str(tmp_path / "copy")]):
        done = run("-m", "jobs.cli.main", *verb, TACL_HOME=str(tmp_path / "home"))
        assert done.returncode == 50
        assert done.stderr == (
            f"error: {tmp_path}/home is no home of TACL yet; make it one: "
            f"tacl up --home {tmp_path}/home --base SPEC, or name another with --home\n"
        )
    for words in (["status", "--home", ""], ["--home", "", "status"]):  # no home is in this folder
        refused = run("-m", "jobs.cli.main", *words)
        assert (refused.returncode, "no file or folder" in refused.stderr) == (2, True)
    refused = run("-m", "jobs.cli.main", "status", "--home", "~nobody-there/home")
    assert (refused.returncode, refused.stderr[:6]) == (50, "error:")
    assert run("-m", "jobs.cli.main", "down", "--home", str(tmp_path / "home")).returncode == 0
