"""Start and stop the process behind a home: `python -m cluster.runtime.head`, detached.

The head's exit code is that of its error (`cluster.errors`) and the last line of its log the
message, so that a failed start is raised here as the error that it was there.
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
AGAIN_SECONDS = 60.0  # for a cluster that was lost, whose head tries again for ever
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

    `address` is that of a Ray cluster to join, `insecure` that it may ask for no token, `runs` how
    many a process of a learner does at most. Raises HomeInUse, BadConfig, DataNotFound, or what the
    head died of.
    """
    if (settings := home.settings()) is not None:  # what it has is not looked for: it may be gone
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
        require_founder(home, chosen)  # else what lies at the storage is asked by the head
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
    except BaseException:  # whoever does not wait for the cluster does not want it
        _end(process)
        raise
    return described(home, started=True)


def _appending(path: str, flags: int) -> int:
    """As the log of two heads that are started at the same moment, of which one ends at once."""
    return os.open(path, flags | os.O_APPEND, 0o600)


def stop(home: Home) -> bool:
    """Ask the head to end and wait for it; False when none runs. Raises ClusterNotRunning."""
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
    """A zombie, which nobody has waited for yet, has ended too."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """The head ends all that it started; when it cannot, Ray's processes notice its death."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def described(home: Home, started: bool) -> StartedCluster:
    """What runs. ClusterNotRunning when nothing does."""
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
    """The same from any directory. Raises BadBase, DataNotFound, and BaseNotFound where its base
    `must_exist`."""
    base, generic, storage = chosen.base, chosen.generic, chosen.storage
    return replace(
        chosen,
        base=None if base is None else str(BaseSpec.parse(base).placed(must_exist)),
        generic=None if generic is None else absolute_data(generic),
        storage=None if storage is None else absolute_uri(storage),
    )


def absolute_data(data: str | Path) -> str:
    """The same data set from any directory; a hub id stays as it is. DataNotFound."""
    from cluster.data.sources import located

    return str(located(str(data)) or data)


def _await(home: Home, process: subprocess.Popen[bytes], log: Path, say: Say) -> None:
    """Return when the head answers; raise its error when it dies. Its log lines are passed on."""
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
    """On a full disk a head can say nothing."""
    from cluster.runtime.doctor import unwritable

    return "; ".join(unwritable(log.parent)) or "it said nothing"
