"""A cluster of forked processes: they die by SIGKILL as on Ray, and start in milliseconds.

One process forks the others and restarts a coordinator that died; learners live on meanwhile.
Callers find the coordinator through a socket and wait while it is away.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener, wait
from pathlib import Path
from typing import Any, NoReturn

from cluster import failpoints
from cluster.coordinator.core import Coordinator
from cluster.domain.outcomes import Finished, Gone, Lost, Outcome, Raised
from cluster.domain.work import Lease, Leave, Progress, Work
from cluster.scheduler.adoption import Attempt
from cluster.scheduler.state import Needs, Node
from cluster.storage.home import Home
from tacl.errors import StorageUnavailable
from tests.support.quick import Quick

PATIENCE = 60.0  # seconds for a coordinator to come back
PERIOD = 0.05  # seconds between two checks of the runs


class Forked:
    """A home's cluster; the process that makes it must have no threads yet."""

    wide = 1  # groups need Ray

    def __init__(self, home: Home, cpus: int = 2) -> None:
        self.home = home
        for name in ("run/learners", "dies"):
            (home.path / name).mkdir(parents=True, exist_ok=True)
        self._supervisor = _fork(lambda: _supervise(home, cpus))

    def ask(self, method: str, *arguments: Any) -> Any:
        return ask(self.home, method, *arguments)

    def pids(self, title: str) -> list[int]:
        """Ids of the coordinator's process, or of learners at work; there are no groups."""
        found = [int(path.suffix[1:]) for path in (self.home.path / "run").glob(f"{title}.*")]
        return [pid for pid in found if _runs(pid)]

    def stop(self) -> None:
        """End everything, as when the machine is switched off."""
        os.kill(self._supervisor, signal.SIGTERM)
        os.waitpid(self._supervisor, 0)


def ask(home: Home, method: str, *arguments: Any) -> Any:
    """Call the coordinator; repeated if it is lost meanwhile. Raises what the method raises."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            with Client(str(home.path / "run" / "ask")) as connection:
                connection.send((method, arguments))
                well, answer = connection.recv()
            break
        except (OSError, EOFError):
            if time.monotonic() > end:
                raise
            time.sleep(PERIOD)
    if well:
        return answer
    raise answer


# -- the process that forks


def _supervise(home: Home, cpus: int) -> None:
    place, learners = home.path / "run" / "fork", set[int]()
    listener = Listener(str(place))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(_end(learners, coordinator)))
    coordinator = 0
    while True:
        if not coordinator:
            coordinator = _fork(lambda: _coordinate(home, cpus))
            (home.path / "run" / f"coordinator.{coordinator}").touch()
        if wait([listener._listener._socket], PERIOD):  # type: ignore[attr-defined]
            with listener.accept() as connection, suppress(EOFError, OSError):
                work, place = connection.recv()
                place.mkdir()
                learner = _fork(lambda w=work, p=place: _learn(home, w, p))
                learners.add(learner)
                (place / "pid").write_text(str(learner))
                (home.path / "run" / f"learner.{learner}").touch()
                connection.send("it runs")
        while (ended := _reaped()) is not None:
            learners.discard(ended)
            coordinator = 0 if ended == coordinator else coordinator


def _end(learners: set[int], coordinator: int) -> int:
    for pid in {*learners, coordinator} - {0}:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return 0


def _reaped() -> int | None:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] or None
    except ChildProcessError:
        return None


def _fork(run: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    code = 1
    try:
        run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# -- the coordinator's process


class ForkLauncher:
    """`cluster.coordinator.launcher.Launcher`: every attempt is forked and has a folder, with its
    pid and its outcome."""

    def __init__(self, home: Home, cpus: int) -> None:
        self._folder, self._cpus = home.path / "run", cpus

    def nodes(self) -> tuple[Node, ...]:
        return (Node(self._cpus),)

    def free(self) -> tuple[Node, ...]:
        return ()

    def start(self, work: Work, needs: Needs) -> Path:
        place = self._place(Attempt(work.run_id, work.attempt))
        if not place.exists():
            with Client(str(self._folder / "fork")) as connection:
                connection.send((work, place))
                connection.recv()
        return place

    def learners(self) -> list[Attempt]:
        found = (path.name.split("-") for path in (self._folder / "learners").iterdir())
        return [Attempt(run_id, int(number)) for run_id, number in found]

    def end(self, attempt: Attempt) -> None:
        self.cancel(self._place(attempt))

    def ended(self, handles: Mapping[str, Path]) -> Collection[str]:
        return handles

    def poll(self, handle: Path) -> Outcome | None:
        ended = not _runs(int((handle / "pid").read_text()))
        if (handle / "outcome").exists():
            return pickle.loads((handle / "outcome").read_bytes())
        return Gone("the learner's process was lost") if ended else None

    def let_go(self, handle: Path) -> None:
        self.cancel(handle)

    def cancel(self, handle: Path) -> None:
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int((handle / "pid").read_text()), signal.SIGKILL)
        shutil.rmtree(handle, ignore_errors=True)

    def _place(self, attempt: Attempt) -> Path:
        return self._folder / "learners" / f"{attempt.run_id}-{attempt.number}"


def _coordinate(home: Home, cpus: int) -> NoReturn:
    failpoints.watch = failpoints.dying(home.path / "dies")
    coordinator = Coordinator(home.path, ForkLauncher(home, cpus))
    place = home.path / "run" / "ask"
    place.unlink(missing_ok=True)
    listener = Listener(str(place), backlog=64)
    threading.Thread(target=_watch, args=(coordinator,), daemon=True).start()
    while True:
        connection = listener.accept()
        threading.Thread(target=_answer, args=(coordinator, connection), daemon=True).start()


def _watch(coordinator: Coordinator) -> None:
    while True:
        coordinator.tick()
        time.sleep(PERIOD)


def _answer(coordinator: Coordinator, connection: Connection) -> None:
    with connection, suppress(OSError, EOFError):
        method, arguments = connection.recv()
        try:
            answer = True, getattr(coordinator, method)(*arguments)
        except Exception as error:
            answer = False, error
        connection.send(answer)


# -- a learner's process


def _learn(home: Home, work: Work, place: Path) -> None:
    failpoints.watch = failpoints.dying(home.path / "dies")
    try:
        outcome: Outcome = Finished(Quick(str(home.path), Known(home)).work(work))
    except Lost as error:
        outcome = Gone(str(error))
    except Exception as error:
        outcome = Raised(f"{type(error).__name__}: {error}")
    beside = place / "writing"
    beside.write_bytes(pickle.dumps(outcome))
    beside.rename(place / "outcome")


class Known:
    """Calls the current coordinator, as `cluster.runtime.connection` does on Ray."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def __call__(self, asked: Lease) -> Leave:
        try:
            return ask(self._home, "lease", asked)
        except (OSError, EOFError, StorageUnavailable) as error:
            raise Lost(str(error)) from error

    def publish_statistics(self, run_id: str, statistics: str, attempt: int) -> None:
        raise NotImplementedError("no learner of these tests shares statistics")

    def report_progress(self, run_id: str, progress: Progress, attempt: int) -> bool:
        raise NotImplementedError("work takes no time in these tests")
