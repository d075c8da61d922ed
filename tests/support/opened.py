"""Whether a file was opened, by any process and library, as the kernel reports (inotify)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

IN_OPEN = 0x20


@contextmanager
def watched(path: Path) -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether `path` was opened since the block started."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK)
    if descriptor < 0 or libc.inotify_add_watch(descriptor, bytes(path), IN_OPEN) < 0:
        raise OSError(ctypes.get_errno(), f"{path} cannot be watched")

    def opened() -> bool:
        with suppress(BlockingIOError):
            return bool(os.read(descriptor, 4096))
        return False

    try:
        yield opened
    finally:
        os.close(descriptor)
