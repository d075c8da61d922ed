"""A data set that is read in a process of its own: bounded, answered, and ended with its caller."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
import uvloop

from cluster.api.service import GivenRows, Upload
from cluster.domain.compositions import CompositionMethod
from cluster.domain.tasks import Options, Submission
from cluster.serving import preparing
from cluster.serving.app import Ingress
from cluster.serving.preparing import Job, read
from cluster.storage.home import Home
from cluster.storage.niceness import NICENESS
from tacl.errors import EmptySplit, TaclError, TooLarge
from tests.support.fakes import new_home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return new_home(tmp_path / "home")


def job(home: Home, data: Path) -> Job:
    upload = Upload(data, "news", "ann", False, Options(steps=7), "once")
    return Job(home=home.where, given=upload)


def texts(folder: Path, rows: int = 40) -> Path:
    path = folder / "data.csv"
    path.write_text("text,label\n" + "".join(f"text {n},{n % 2}\n" for n in range(rows)))
    return path


Python = Callable[[str], None]


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Python:
    """Makes a script of a shell the Python that is started."""

    def become(script: str) -> None:
        (path := tmp_path / "python").write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(path))

    return become


def reader(changed: str) -> str:
    """The reader itself, after this change of `r`."""
    started = f"import cluster.serving.preparing as r; {changed}; r.main()"
    return f"exec {sys.executable} -c '{started}' $3"


def test_it_is_the_submission_of_this_process(home: Home, tmp_path: Path) -> None:
    asked = job(home, texts(tmp_path))
    assert asyncio.run(read(asked)) == asked.given.stored(home)


def test_names_of_classes_arrive_whatever_the_locale(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    rows = "".join(f"text {n},{'是否'[n % 2]}\n" for n in range(40))
    (tmp_path / "data.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
    found = asyncio.run(read(job(home, tmp_path / "data.csv")))
    assert isinstance(found, Submission)
    assert found.classes == ("否", "是")


def test_rows_of_a_composition_and_errors_come_as_they_are(home: Home, tmp_path: Path) -> None:
    rows = GivenRows("ann", ("news",), "atlas", fit=texts(tmp_path), shots=3)
    making = asyncio.run(read(Job(home=home.where, given=rows)))
    assert isinstance(making, CompositionMethod)
    assert making.fit is not None
    with pytest.raises(EmptySplit):
        asyncio.run(read(job(home, texts(tmp_path, 0))))


def test_what_becomes_more_than_its_memory_is_refused(home: Home, tmp_path: Path) -> None:
    """A square of columns: each of 8,000 lines has a key of its own."""
    bomb = tmp_path / "bomb.jsonl"
    bomb.write_text("\n".join(json.dumps({f"key {n}": "x", "label": n % 2}) for n in range(8000)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # a child begins as its parent is
    others = max(before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
    with pytest.raises(TooLarge):
        asyncio.run(read(job(home, bomb), memory := 700 << 20))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 << 10  # KiB
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < max(others, memory >> 10) + 1
    assert not list(home.blobs().stored())[1:]  # but the generic shard of a new home


def test_a_folder_of_the_server_may_take_as_much_as_a_file_of_its_size(home, tmp_path) -> None:
    (inner := tmp_path / "faces" / "happy").mkdir(parents=True)
    for name in "ab":
        with (inner / f"{name}.png").open("wb") as file:
            file.truncate(600 << 20)
    (inner / "broken.png").symlink_to("nothing")
    reference = job(home, tmp_path / "faces")
    assert reference.memory() == preparing.MEMORY + preparing.FACTOR * (1200 << 20)


def test_a_process_that_dies_is_an_answer(home: Home, tmp_path: Path, python: Python) -> None:
    python("cat > /dev/null\nkill -SEGV $$")
    with pytest.raises(TooLarge, match="SIGSEGV"):
        asyncio.run(read(job(home, texts(tmp_path))))


def test_a_process_that_dies_leaves_nothing_of_the_data(
    home: Home, tmp_path: Path, python: Python
) -> None:
    """Unpacked they may be gigabytes, and of a private task."""
    drafts = home.path / "cache" / "drafts"
    python(
        f'echo unpacked > "$TMPDIR/rows"; ls {drafts}/*/files/rows > {tmp_path}/seen; kill -9 $$'
    )
    with pytest.raises(TooLarge, match="SIGKILL"):
        asyncio.run(read(job(home, texts(tmp_path))))
    assert (tmp_path / "seen").read_text()
    assert not [*drafts.iterdir()]


FULL = """lambda *_: open("/dev/full", "wb", 0).write(b"x")"""


@pytest.mark.parametrize("writing", ["r.Upload.stored", "b._measure", "w.ArrowWriter.write_table"])
def test_a_full_disk_is_told_as_one(
    writing: str, home: Home, tmp_path: Path, python: Python
) -> None:
    imported = "import cluster.storage.blobs as b, datasets.arrow_writer as w"
    python(reader(f"{imported}; {writing} = {FULL}"))
    with pytest.raises(OSError, match="No space left") as error:
        asyncio.run(read(job(home, texts(tmp_path))))
    assert error.value.errno == errno.ENOSPC


def test_few_bytes_are_read_for_a_short_time(home: Home, tmp_path: Path, python: Python) -> None:
    small, large = job(home, texts(tmp_path)), tmp_path / "large.csv"
    with large.open("wb") as file:
        file.truncate(200 << 20)
    assert (small.cpu_seconds(), job(home, large).cpu_seconds()) == (60, 260)
    python(reader("r.CPU_SECONDS, r._answer = 1, lambda *job: [None for _ in iter(int, 1)]"))
    with pytest.raises(TooLarge, match="SIGXCPU|SIGKILL"):
        asyncio.run(read(small))


def test_it_gives_way_to_who_answers_people(home: Home, tmp_path: Path, python: Python) -> None:
    """From its first moment: what it imports takes longer than most data."""
    python("""printf '{"error": "TooLarge", "message": "%s"}' $(nice)""")
    with pytest.raises(TooLarge) as error:
        asyncio.run(read(job(home, texts(tmp_path))))
    assert int(str(error.value)) == max(os.getpriority(os.PRIO_PROCESS, 0), NICENESS)


FORKED: list[Path] = []  # a file that is written in every child that is forked


def _forked() -> None:
    for path in FORKED:
        path.touch()


os.register_at_fork(after_in_child=_forked)


def test_nothing_of_the_server_runs_in_its_process(home: Home, tmp_path: Path) -> None:
    """What is forked may wait for a lock that no thread there will ever give back, and the event
    loop that Ray uses waits for it."""
    FORKED.append(tmp_path / "forked")
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(read(job(home, texts(tmp_path))))
            assert not FORKED[0].exists()
            runner.run(asyncio.create_subprocess_exec("true"))
            assert FORKED[0].exists()  # as it would be
    finally:
        FORKED.clear()


def test_an_error_quotes_little_of_the_data(home: Home, tmp_path: Path) -> None:
    """Else it comes to the process that answers everybody."""
    path = tmp_path / "data.csv"
    path.write_text("text,label\n" + f"a,{'x' * 300_000}\n" * 20)
    with pytest.raises(TaclError) as refused:
        asyncio.run(read(job(home, path)))
    assert len(str(refused.value)) <= 2000


def test_a_server_whose_readers_cannot_be_started_is_not_ready(home: Home) -> None:
    async def story() -> None:
        server, stuck = Ingress(str(home.path), cast(Any, None), 1, False), threading.Event()
        assert await server.reads()
        preparing.STARTING.submit(stuck.wait)
        asked = asyncio.create_task(server.reads())
        await asyncio.sleep(0.1)
        assert not asked.done()  # and what asks takes that for a no (`cluster.api.health`)
        stuck.set()
        assert await asked

    asyncio.run(asyncio.wait_for(story(), 20))


@pytest.mark.parametrize("begun", [True, False])
def test_it_ends_when_nobody_waits_for_it(
    home: Home, tmp_path: Path, python: Python, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """Also who hangs up before it is known to have begun."""
    python("exec sleep 1000")
    me = psutil.Process(os.getpid())
    before = set(me.children())
    started, known = preparing._started, threading.Event()

    def slowly(memory: int, folder: Path) -> subprocess.Popen[bytes]:
        process = started(memory, folder)
        known.wait()
        return process

    monkeypatch.setattr(preparing, "_started", started if begun else slowly)

    async def story() -> None:
        task = asyncio.create_task(read(job(home, texts(tmp_path))))
        while not (found := set(me.children()) - before):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        known.set()
        while any(child.is_running() for child in found):
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(story(), 20))
