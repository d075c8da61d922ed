"""What somebody sent is read in a process of its own, whose memory and time are bounded: whatever
it does to the libraries that read it is an answer to that one request. It ends with its caller.

`python -m cluster.serving.reading` is that process: a `Job` comes in, a `Read` goes out.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from pathlib import Path

from cluster.api.service import Upload
from cluster.domain.base import Message
from cluster.domain.compositions import CompositionMethod, Method
from cluster.domain.tasks import Submission
from cluster.storage.home import Home
from tacl import errors
from tacl.errors import TaclError, TooLarge, TooLate

SECONDS = 600
CPU_SECONDS = 60  # and one for each MiB of the data: few bytes hold nobody up for long
MEMORY = 3 << 30  # bytes of addresses, libraries included; and for each byte of the data
FACTOR = 6  # so many: they are decoded, held, and written again
SAID = 2000  # characters of an error, which may quote the data
# Addresses that are reserved and never used would count.
FRUGAL = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1"}


class Rows(Message):
    """What a composition is made from (`cluster.data.compositions.prepared`)."""

    terms: tuple[str, ...]
    method: Method
    select: str | None = None
    fit: Path | None = None
    shots: int | None = None
    adapt: Path | None = None
    classes: tuple[str, ...] | None = None


class Job(Message):
    home: str
    upload: Upload | None = None
    request_id: str = ""
    rows: Rows | None = None

    def memory(self) -> int:
        return MEMORY + FACTOR * sum(path.stat().st_size for path in self._given())

    def cpu_seconds(self) -> int:
        if any(path.is_dir() for path in self._given()):  # laid down by who has the server
            return SECONDS
        return min(CPU_SECONDS + sum(path.stat().st_size >> 20 for path in self._given()), SECONDS)

    def _given(self) -> list[Path]:
        given = [self.upload and self.upload.data, self.rows and self.rows.fit]
        return [path for path in (*given, self.rows and self.rows.adapt) if path]


class Read(Message):
    """Either what was read, or a class of `tacl.errors` with its message."""

    submission: Submission | None = None
    making: CompositionMethod | None = None
    error: str = ""
    message: str = ""


async def read(job: Job, memory: int | None = None) -> Read:
    """Raises what is wrong with the data, TooLarge and TooLate."""
    memory = memory or job.memory()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cluster.serving.reading", str(memory)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | FRUGAL,
    )
    try:
        async with asyncio.timeout(SECONDS):
            said, _ = await process.communicate(job.model_dump_json().encode())
    except TimeoutError as error:
        raise TooLate(f"the data were not read within {SECONDS} s; give less at once") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise TooLarge(
            f"the process that read the data ended ({_ended(process.returncode)}); it may use "
            f"{memory >> 20} MiB. Give less at once, or write the data anew"
        )
    found = Read.model_validate_json(said.splitlines()[-1])
    if found.error:
        raise getattr(errors, found.error)(found.message)
    return found


def _ended(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _done(job: Job) -> Read:
    from cluster.api.uploads import submission_of
    from cluster.data.compositions import prepared_in

    home = Home.at(job.home)
    if job.upload is not None:
        return Read(submission=submission_of(job.upload, job.request_id, home))
    assert job.rows is not None
    given = {name: value for name, value in job.rows if name not in ("terms", "method")}
    return Read(making=prepared_in(home, job.rows.terms, job.rows.method, **given))


def _answer(job: Job, memory: int) -> Read:
    try:
        return _done(job)
    except TaclError as error:
        return Read(error=type(error).__name__, message=str(error)[:SAID])
    except MemoryError:
        most = f"reading the data takes more than {memory >> 20} MiB; give less at once"
        return Read(error="TooLarge", message=most)


def main() -> None:
    job, memory = Job.model_validate_json(sys.stdin.buffer.read()), int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    seconds = job.cpu_seconds()
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    print(_answer(job, memory).model_dump_json())


if __name__ == "__main__":
    main()
