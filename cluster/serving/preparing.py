"""Reads what a user sent in a process of its own with limited memory and time, so that data which
break the libraries that read them fail only their own request. The process ends with its caller.

`python -m cluster.serving.preparing` is that process: a `Job` on stdin, a `Read` on stdout.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from cluster.api.service import GivenRows, Upload
from cluster.domain.base import Message
from cluster.domain.compositions import CompositionMethod
from cluster.domain.tasks import Submission
from cluster.errors import NAMES, name_of
from cluster.storage.drafts import scratch
from cluster.storage.home import Home
from cluster.storage.niceness import lower_priority
from tacl.errors import TaclError, TooLarge, TooLate

SECONDS = 600
CPU_SECONDS = 60  # plus one for each MiB of the data: few bytes hold nobody up for long
MEMORY = 3 << 30  # bytes of address space, libraries included; plus FACTOR for a byte of the data
FACTOR = 6  # each byte is decoded, held, and written again
FULL = (errno.ENOSPC, errno.EDQUOT)
SAID = 2000  # characters of an error, which may quote the data
# Reserve no address space that is never used, since it would count; and write JSON as UTF-8
# whatever the locale.
SETTINGS = {
    **{"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1"},
    "PYTHONIOENCODING": "utf-8",
}
# Processes that this thread starts have a low priority from the start, also while they import.
STARTING = ThreadPoolExecutor(1, "readers", initializer=lower_priority)


class Job(Message):
    home: str
    given: Upload | GivenRows

    def memory(self) -> int:
        """The limit of address space in bytes; a folder counts with all files in it."""
        below = (one for path in self.given.files for one in (path, *path.rglob("*")))
        return MEMORY + FACTOR * sum(one.stat().st_size for one in below if one.is_file())

    def cpu_seconds(self) -> int:
        if any(path.is_dir() for path in self.given.files):  # put there by the server's operator
            return SECONDS
        whole = sum(path.stat().st_size >> 20 for path in self.given.files)
        return min(CPU_SECONDS + whole, SECONDS)


class Read(Message):
    """What was read; or the name of a class of `tacl.errors` with the message; or, in `full`, the
    errno with which the disk refused to be written."""

    found: Submission | CompositionMethod | None = None
    error: str = ""
    message: str = ""
    full: int = 0


async def read(job: Job, memory: int | None = None) -> Submission | CompositionMethod:
    """What the job has stored. Nothing remains of the temporary files of a process that is killed.
    Raises the errors of bad data, TooLarge and TooLate, and OSError if the disk is full."""
    memory = memory or await asyncio.to_thread(job.memory)
    with scratch(Home.at(job.home).path / "cache") as folder:
        return await _read(job, memory, folder)


async def _read(job: Job, memory: int, folder: Path) -> Submission | CompositionMethod:
    process = await _reader(memory, folder)
    given = job.model_dump_json().encode()
    try:
        said, _ = await asyncio.to_thread(process.communicate, given, SECONDS)
    except subprocess.TimeoutExpired as error:
        raise TooLate(f"the data were not read within {SECONDS} s; give less at once") from error
    finally:
        _end(process)
    if process.returncode:
        raise TooLarge(
            f"the process that read the data ended ({_ended(process.returncode)}); it may use "
            f"{memory >> 20} MiB. Give less at once, or write the data anew"
        )
    found = Read.model_validate_json(said.splitlines()[-1])
    if found.error:
        raise NAMES[found.error](found.message)
    if found.full:
        raise OSError(found.full, os.strerror(found.full))
    assert found.found is not None, "neither read nor refused"
    return found.found


async def _reader(memory: int, folder: Path) -> subprocess.Popen[bytes]:
    starting = STARTING.submit(_started, memory, folder)
    try:
        return await asyncio.wrap_future(starting)
    except asyncio.CancelledError:  # nobody waits any more, but the thread may still start it
        starting.add_done_callback(_end_started)
        raise


def _end_started(starting: Future[subprocess.Popen[bytes]]) -> None:
    if not starting.cancelled() and not starting.exception():
        _end(starting.result())


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        process.kill()
        process.wait()


def _started(memory: int, folder: Path) -> subprocess.Popen[bytes]:
    """Start the process by `subprocess`, not by the event loop: Ray's, uvloop, forks, so that any
    lock which another thread holds just then stays held in the child, and the loop waits for it.
    """
    return subprocess.Popen(
        (sys.executable, "-m", "cluster.serving.preparing", str(memory)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | SETTINGS | {"TMPDIR": str(folder)},
    )


def _ended(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _answer(job: Job, memory: int) -> Read:
    try:
        return Read(found=job.given.stored(Home.at(job.home)))
    except (TaclError, OSError) as error:
        for one in _causes(error):
            if isinstance(one, OSError) and one.errno in FULL:
                return Read(full=one.errno)
        if isinstance(error, OSError):
            raise
        return Read(error=name_of(error), message=str(error)[:SAID])
    except MemoryError:
        most = f"reading the data takes more than {memory >> 20} MiB; give less at once"
        return Read(error="TooLarge", message=most)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and its causes: in errors of the readers of data sets it is two steps away."""
    while error is not None:
        yield error
        error = error.__cause__


def main() -> None:
    job, memory = Job.model_validate_json(sys.stdin.buffer.read()), int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    seconds = job.cpu_seconds()
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    print(_answer(job, memory).model_dump_json())


if __name__ == "__main__":
    main()
