"""Restarting the cluster of a home after it was lost, or could not be started again.

A lost cluster does not shut down in order: Ray waits a minute for its control service and then ends
the process. So the head ends what it started and starts again as a new program in the same process:
with the same pid, log and lock, which nobody else can take meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import psutil

from cluster.storage.home import Home, Running, write

HEAD = (sys.executable, "-m", "cluster.runtime.head")
MARKS = ("--losses", "--lock")  # arguments of a head that was restarted
MAX_BACKOFF = 30.0  # Ray ends this process a minute after its control service was lost
STABLE_SECONDS = 600.0  # after so long, a loss is the first of a new series

LOG = logging.getLogger(__name__)
Restart = Callable[[str], NoReturn]  # the argument: why


def consecutive_losses(before: int, lived: float) -> int:
    """The number of this loss in its series, after `before` others and `lived` seconds."""
    return 1 if lived > STABLE_SECONDS else before + 1


def backoff(losses: int) -> float:
    """Seconds until the cluster is started again: 0, then 1, 2, 4, ..."""
    return 0.0 if losses <= 1 else min(2.0 ** (losses - 2), MAX_BACKOFF)


def first(arguments: Sequence[str]) -> Sequence[str]:
    """The arguments with which the head was first started."""
    return arguments[: arguments.index(MARKS[0])] if MARKS[0] in arguments else arguments


def restarter(
    home: Home, lock: int, command: Sequence[str], losses: int, environment: Mapping[str, str]
) -> Restart:
    """A function that restarts `command`, which started after `losses` others, in `environment`."""
    begun = time.monotonic()

    def start(why: str) -> NoReturn:
        stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
        with contextlib.suppress(OSError):  # it is restarted on a full disk too
            write(home.running_file, Running(pid=os.getpid(), address="", token=None, lost=why))
        end(psutil.Process().children(recursive=True), patience=0)
        number = consecutive_losses(losses, time.monotonic() - begun)
        seconds = backoff(number)
        LOG.error("lost", extra={"cause": why, "attempt": number})
        with contextlib.suppress(OSError):
            print(f"{why}; starting again in {seconds:g} s", flush=True)
        if stop.wait(seconds):
            home.running_file.unlink(missing_ok=True)
            os._exit(0)  # Ray would hang in an orderly exit
        _let_go_of_all_but(lock)
        marks = [
            word for pair in zip(MARKS, (number, lock), strict=True) for word in map(str, pair)
        ]
        os.execve(sys.executable, [*command, *marks], environment)

    return start


def head_here(running: Running) -> psutil.Process | None:
    """The head's process; None if the head runs on another machine with the same home, where a
    process of that number here may be anything."""
    with contextlib.suppress(psutil.Error):
        head = psutil.Process(running.pid)
        if HEAD[-1] in head.cmdline():
            return head
    return None


def _let_go_of_all_but(lock: int) -> None:
    """Close them on exec, connections too: a cluster that was joined should see that they ended."""
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            os.set_inheritable(int(name), int(name) in (0, 1, 2, lock))


def end(family: list[psutil.Process], patience: float = 2) -> None:
    """End these processes. Ray's agents, which rarely check that their cluster is gone, are killed
    without waiting."""
    agents = [process for process in family if _is_agent(process)]
    others = [process for process in family if process not in agents]
    _, alive = psutil.wait_procs(others, timeout=patience)
    for process in alive + agents:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive + agents, timeout=10)


def _is_agent(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        title = "".join(process.cmdline()[:1])
        return title.startswith("ray::") and title.endswith("Agent")
    return False
