"""The registry read in this process, so that the coordinator is not asked: it may be busy or dead.
`cluster.domain.api.READS` says what that is; the rest is decided or written, by the coordinator
alone.

SQLite is read on the coordinator's machine alone: on another one its file, where it lies on a
shared disk, might be seen as it was. Where the registry cannot be read, or its server does not
answer in time (`cluster.registry.dialects`), it is not tried again for a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from cluster.reading.reader import Reader
from cluster.runtime import local_socket
from cluster.storage.home import Home
from tacl.errors import ClusterNotRunning, StorageUnavailable, TaclError

AGAIN = 10.0  # seconds until it is tried again to read what could not be read


class Unread(Exception):
    """The registry cannot be read from here, now: the coordinator is to be asked."""


class OwnReader:
    """For any number of threads of one process. `note`: as for `Reader`."""

    def __init__(self, home: Home, note: Callable[[Sequence[str]], None]) -> None:
        self._home, self._note = home, note
        self._opening, self._tried = threading.Lock(), -AGAIN
        self._reader: Reader | None = None  # opened when it is first asked

    def ask(self, method: str, *arguments: object, **named: object) -> Any:
        """Raises what the method raises, or Unread."""
        reader = self._opened()
        try:
            return getattr(reader, method)(*arguments, **named)
        except StorageUnavailable as error:
            raise self._unread(error) from error

    def _opened(self) -> Reader:
        with self._opening:
            if time.monotonic() - self._tried < AGAIN:
                raise Unread("it could not be read just now")
            try:
                self._reader = self._reader or self._open()
            except TaclError as error:
                raise self._unread(error) from error
            return self._reader

    def _open(self) -> Reader:
        if self._home.is_pinned and not self._is_coordinated_here():
            raise ClusterNotRunning(f"no coordinator of {self._home.path} runs on this machine")
        return Reader(self._home, self._note)

    def _is_coordinated_here(self) -> bool:
        """The coordinator itself may be dead; who starts another one on the same machine is not."""
        if local_socket.answers(self._home.path):
            return True
        from cluster.runtime.restart import head_here  # which imports psutil

        running = self._home.running()
        return running is not None and head_here(running) is not None

    def _unread(self, error: TaclError) -> Unread:
        self._tried = time.monotonic()
        return Unread(str(error))
