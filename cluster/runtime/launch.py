"""Start and stop the process behind a home: `python -m cluster.runtime.head`, detached.

The head's exit code is that of its error (`cluster.errors`), and the last line of its log is the
message, so a failed start raises the same error here as in the head.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import psutil

from cluster.domain.operations import StartedCluster
from cluster.errors import TABLE
from cluster.runtime import served
from cluster.runtime.restart import HEAD, head_here
from cluster.storage.filesystem import absolute_uri
from cluster.storage.home import FATAL, Founding, Home, require_founder
from tacl.errors import BadConfig, ClusterNotRunning, TaclError
from tacl.spec import BaseSpec

START_SECONDS = 600.0  # a first start loads the encoder and reads the generic data
AGAIN_SECONDS = 60.0  # for a lost cluster, whose head tries for ever
STOP_SECONDS = 60.0

Say = Callable[[str], None]


def start(
    home: Home,
    chosen: Founding,
    cpus: int | None,
    address: str | None,
    insecure: bool,
    say: Say,
    runs: int | None = None,
) -> StartedCluster:
    """Start the head of `home` and wait for it.

    `address`: of a Ray cluster to join; `insecure`: it may require no token; `runs`: most runs of a
    learner process. Raises HomeInUse, BadConfig, DataNotFound, or the error with which the head
    ended.
    """
    if (settings := home.settings()) is not None:  # not looked up: it may be gone
        base = None if chosen.base == settings.base.spec else chosen.base
        chosen = replace(chosen, base=base, generic=None)
    chosen = absolute(chosen, must_exist=settings is None)
    if address is not None and cpus is not None:
        raise BadConfig(f"the cluster at {address} has the CPUs that it has; leave --cpus out")
    if insecure and address is None:
        raise BadConfig(
            "a cluster of this machine is always closed; --insecure goes with --address"
        )
    running = home.running()
    if chosen.storage is None or running is not None:
        require_founder(home, chosen)  # else the head checks what is in the storage
    if running is not None:
        if running.lost is not None:
            say(f"the cluster is being started again: {running.lost}")
            _await_again(home)
        return described(home, started=False)
    home.close_to_others()
    home.logs.mkdir(mode=0o700, exist_ok=True)
    log = home.logs / "head.log"
    options = {**asdict(chosen), "cpus": cpus, "address": address, "runs": runs}
    command = [*HEAD, "--home", str(home.path)]
    for name, value in options.items():
        command += [] if value is None else [f"--{name}", str(value)]
    command += ["--insecure"] if insecure else []
    with open(log, "w", opener=_appending) as stream:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )
    try:
        _await(home, process, log, say)
    except BaseException:  # a caller that stops waiting does not want the cluster
        _end(process)
        raise
    return described(home, started=True)


def _appending(path: str, flags: int) -> int:
    """Open for appending: of two heads that start at the same moment, one ends at once."""
    return os.open(path, flags | os.O_APPEND, 0o600)


def stop(home: Home) -> bool:
    """Request that the head ends, and wait; False if none runs. Raises ClusterNotRunning."""
    running = home.running()
    if running is None:
        return False
    head = head_here(running)
    if head is None:
        raise ClusterNotRunning(
            f"the cluster of {home.path} runs on another machine, as process {running.pid}; stop "
            f"it there: {home.command('down')}"
        )
    head.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    while home.running() is not None or not _ended(head):
        if time.monotonic() > deadline:
            raise ClusterNotRunning(
                f"the cluster of {home.path} was asked to stop and process {running.pid} still "
                f"runs after {STOP_SECONDS:.0f} s. See {home.logs}."
            )
        time.sleep(0.1)
    return True


def _ended(process: psutil.Process) -> bool:
    """Whether the process has ended; a zombie, which nobody has waited for yet, has too."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """The head ends all that it started; if it cannot, Ray's processes notice its death."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def described(home: Home, started: bool) -> StartedCluster:
    """Describe the running cluster. Raises ClusterNotRunning."""
    settings, running = home.founded(), served.running(home)
    return StartedCluster(
        home=str(home.path),
        base=settings.base.spec,
        digest=settings.base.digest,
        modality=settings.base.modality,
        generic_rows=settings.generic.rows,
        address=running.address,
        pid=running.pid,
        started=started,
    )


def absolute(chosen: Founding, must_exist: bool = True) -> Founding:
    """The same choice, valid in any directory. Raises BadBase, DataNotFound, and, with
    `must_exist`, BaseNotFound."""
    base, generic, storage = chosen.base, chosen.generic, chosen.storage
    return replace(
        chosen,
        base=None if base is None else str(BaseSpec.parse(base).placed(must_exist)),
        generic=None if generic is None else absolute_data(generic),
        storage=None if storage is None else absolute_uri(storage),
    )


def absolute_data(data: str | Path) -> str:
    """The data set's path, valid in any directory; a hub id is unchanged. Raises DataNotFound."""
    from cluster.data.sources import located

    return str(located(str(data)) or data)


def _await(home: Home, process: subprocess.Popen[bytes], log: Path, say: Say) -> None:
    """Wait until the head answers and pass on its log lines. Raises the head's error if it dies."""
    deadline = time.monotonic() + START_SECONDS
    said = 0
    while home.running() is None:
        lines = log.read_text(errors="replace").splitlines()
        for line in lines[said:]:
            if not line.startswith(FATAL):  # raised, once the head is dead
                say(line)
        said = len(lines)
        if (code := process.poll()) is not None:
            raise _death(code, log)
        if time.monotonic() > deadline:
            raise ClusterNotRunning(f"no cluster after {START_SECONDS:.0f} s; see {log}")
        time.sleep(0.1)


def _await_again(home: Home) -> None:
    deadline = time.monotonic() + AGAIN_SECONDS
    while (running := home.running()) is not None and running.lost is not None:
        if time.monotonic() > deadline:
            raise ClusterNotRunning(
                f"the cluster of {home.path} was lost and could not be started again: "
                f"{running.lost}. It is tried for ever; see {home.logs}, or end it: "
                f"{home.command('down')}"
            )
        time.sleep(0.1)


def _death(code: int, log: Path) -> TaclError:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    said = [line for line in lines if line.startswith(FATAL)] or lines
    message = said[-1].removeprefix(FATAL) if said else _why_silent(log)
    for cls, (exit_code, _) in TABLE.items():
        if exit_code == code:
            return cls(message)
    return ClusterNotRunning(f"the cluster did not start (exit {code}): {message}. See {log}.")


def _why_silent(log: Path) -> str:
    """Why the log is empty: on a full disk a head cannot write to it."""
    from cluster.runtime.doctor import unwritable

    return "; ".join(unwritable(log.parent)) or "it said nothing"
