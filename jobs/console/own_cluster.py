"""A cluster for the time of a demo or a bench; nothing is left running afterwards."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from cluster.client.client import Client
from jobs.console.progress import saying

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Handler = Callable[[int, FrameType | None], None] | signal.Handlers


def interrupt(number: int, frame: FrameType | None) -> None:
    """End the work, as Ctrl-C does, also when the terminal closes or on SIGTERM."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


@contextmanager
def ending_by(handler: Handler) -> Iterator[None]:
    """Set how signals end the block. Ignored ones, for example under `nohup`, stay ignored."""
    heard = [one for one in ENDINGS if signal.getsignal(one) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def own_cluster(home: Path, start: Callable[[Client], object]) -> Iterator[Client]:
    """The client of a home whose cluster `start` starts or waits for; the cluster has answered."""
    client = Client(home)
    try:
        with ending_by(interrupt):
            start(client)
            client.cluster()  # if this goes through Ray, Ray sets its own handlers
            with ending_by(interrupt):
                yield client
    finally:
        # A second Ctrl-C does not interrupt the cleanup after the first.
        with ending_by(signal.SIG_IGN), saying("stopping the cluster"):
            client.down()
