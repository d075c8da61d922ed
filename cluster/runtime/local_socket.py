"""Calls to a coordinator, or to a server's predictors, on their own machine: a socket in the home.

Importing Ray and joining its cluster takes longer than what most commands request. Calls that are
not answered here go through Ray (`home_coordinator`): every call is idempotent by its arguments.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Client, Connection
from pathlib import Path
from threading import Thread
from typing import Any

from tacl.errors import TaclError

SOCKET = "coordinator.sock"  # every process that may read the home may connect
PREDICTORS = "predictors.sock"  # of the server
LONGEST = 100  # bytes of its path; operating systems accept little more

LOG = logging.getLogger(__name__)
Call = Callable[[str, Sequence[object]], Any]  # name and arguments of a method


class NoListener(Exception):
    """Nobody answered on this machine."""


# -- the side that answers


def listen(home: Path, call: Call, name: str = SOCKET) -> None:
    """Answer calls on the socket for as long as this process lives, or until another one listens
    there."""
    draft = home / f"{name}.{os.getpid()}"
    if len(bytes(draft)) > LONGEST or not home.is_dir():
        return
    draft.unlink(missing_ok=True)  # of a process that was killed
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(draft))
    draft.chmod(0o600)
    listener.listen(16)
    draft.replace(home / name)
    Thread(target=_accept, args=(listener, call), name="near", daemon=True).start()


def _accept(listener: socket.socket, call: Call) -> None:
    while True:
        try:
            connection = Connection(listener.accept()[0].detach())
        except OSError:  # for example, the process has no descriptors left
            time.sleep(0.1)
            continue
        Thread(target=_answer, args=(connection, call), daemon=True).start()


def _answer(connection: Connection, call: Call) -> None:
    with connection, contextlib.suppress(EOFError, OSError):
        method, arguments = connection.recv()
        try:
            connection.send((call(method, arguments), None))
        except TaclError as error:
            connection.send((None, error))
        except Exception:
            LOG.exception("%s was not answered", method)  # the answer through Ray will say why


# -- the side that calls


def answers(home: Path, name: str = SOCKET) -> bool:
    """Whether a process listens on the socket: on this machine, as no other can reach it, even if
    all share the directory."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.setblocking(False)
        try:
            asking.connect(str(home / name))
        except BlockingIOError:  # it is stopped, or busy and others wait there already
            return True
        except OSError:
            return False
    return True


def ask(home: Path, method: str, arguments: Sequence[object], name: str = SOCKET) -> Any:
    """Call a method. Raises what the method raises, or NoListener."""
    try:
        with Client(str(home / name), "AF_UNIX") as connection:
            connection.send((method, arguments))
            found, error = connection.recv()
    except (OSError, EOFError) as cause:
        raise NoListener from cause
    if error is not None:
        raise error
    return found
