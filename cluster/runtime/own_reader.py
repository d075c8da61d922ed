"""The registry read in this process, without the coordinator, which may be busy or dead.
`cluster.domain.api.READS` lists these requests; the rest needs decisions or writes, by the
coordinator alone.

SQLite is read only on the coordinator's machine: on another one its file, on a shared disk, might
be seen in an old state. If the registry cannot be read, or its server does not answer in time
(`cluster.registry.dialects`), it is not tried again for a while.
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

AGAIN = 10.0  # seconds until a registry that could not be read is tried again


class Unread(Exception):
    """The registry cannot be read from here now: the coordinator has to be called."""


class OwnReader:
    """A reader for any number of threads of one process. `note`: as for `Reader`."""

    def __init__(self, home: Home, note: Callable[[Sequence[str]], None]) -> None:
        self._home, self._note = home, note
        self._opening, self._tried = threading.Lock(), -AGAIN
        self._reader: Reader | None = None  # opened by the first request

    def ask(self, method: str, *arguments: object, **named: object) -> Any:
        """Call a method of the reader. Raises what the method raises, or Unread."""
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
        """Whether the coordinator, or the head that would restart it, runs on this machine."""
        if local_socket.answers(self._home.path):
            return True
        from cluster.runtime.restart import head_here  # which imports psutil

        running = self._home.running()
        return running is not None and head_here(running) is not None

    def _unread(self, error: TaclError) -> Unread:
        self._tried = time.monotonic()
        return Unread(str(error))
