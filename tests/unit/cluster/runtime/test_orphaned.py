"""A learner works on while its coordinator is away, and ends when nobody waits for it."""

from __future__ import annotations

import gc
import math
import os
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from cluster.domain.work import Measured, MeasureWork, Work
from cluster.runtime import connection, orphaned
from cluster.runtime.connection import CoordinatorClient
from cluster.runtime.process import RECENT, LearnerProcess, attempt_of, name_of
from cluster.scheduler.adoption import Attempt
from cluster.storage.niceness import NICENESS, lower_priority
from tacl.errors import StorageUnavailable
from tests.support.fakes import BASE, new_home

AWAY = int(connection.RUN_SECONDS / orphaned.PERIOD)  # questions without an answer that are borne


def ended_after(answers: Iterable[bool | None]) -> int:
    """How many questions were asked."""
    now, asked, said = [0.0], [0], iter(answers)

    def ask() -> bool | None:
        asked[0] += 1
        return next(said)

    def sleep(seconds: float) -> None:
        now[0] += seconds

    orphaned.until_orphaned(ask, lambda: None, lambda: now[0], sleep)
    return asked[0]


def test_it_ends_when_it_is_told_that_nobody_waits() -> None:
    assert ended_after([True] * 500 + [False]) == 501


def test_it_ends_when_no_coordinator_comes_back_for_long() -> None:
    assert ended_after([True] * 3 + [None] * 2 * AWAY) == 3 + AWAY + 1


def test_a_coordinator_that_comes_back_is_served_on() -> None:
    assert ended_after(([None] * AWAY + [True]) * 3 + [False]) == 3 * (AWAY + 1) + 1


class Works:
    """A learner of a process: done at once, or when it is `let_end`."""

    can_end = threading.Event()
    niceness: int | None = None  # of the last work

    def __init__(self, home: str) -> None:
        pass

    def work(self, work: Work) -> Measured:
        Works.niceness = os.getpriority(os.PRIO_PROCESS, 0)
        self.can_end.wait()
        return Measured(pairs=())


def measuring(run_id: str) -> MeasureWork:
    return MeasureWork(run_id=run_id, base=BASE, pairs=(), attempt=1)


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LearnerProcess]:
    """It does run a; the coordinator waits for run b alone."""
    monkeypatch.setattr(
        CoordinatorClient, "is_current", lambda self, run_id, attempt: run_id == "b"
    )
    monkeypatch.setattr(CoordinatorClient, "answered", -math.inf)
    monkeypatch.setattr("cluster.runtime.process.until_orphaned", lambda *_: None)
    monkeypatch.setattr(
        "cluster.runtime.process.lower_priority", lambda: None
    )  # here others run too
    Works.can_end.set()
    home = str(new_home(tmp_path).path)
    yield LearnerProcess(home, "tests.unit.cluster.runtime.test_orphaned:Works", Attempt("a", 1))
    gc.unfreeze()


def test_a_learner_that_may_be_given_more_is_alone_at_the_second_look(
    process: LearnerProcess,
) -> None:
    process.work(measuring("a"))
    assert [process._awaited() for _ in range(2)] == [True, False]


def test_a_learner_whose_run_was_answered_just_now_asks_nothing(
    process: LearnerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CoordinatorClient, "answered", time.monotonic())
    assert process._awaited()
    monkeypatch.setattr(CoordinatorClient, "answered", time.monotonic() - RECENT)
    assert process._awaited() is False


def test_a_learner_that_was_given_more_is_awaited(process: LearnerProcess) -> None:
    process.work(measuring("a"))
    assert process._awaited()
    process.work(measuring("b"))
    assert [process._awaited() for _ in range(3)] == [True] * 3


def test_a_learner_that_works_for_nobody_is_alone_at_once(process: LearnerProcess) -> None:
    Works.can_end.clear()
    working = threading.Thread(target=process.work, args=(measuring("a"),))
    working.start()
    assert process._awaited() is False
    Works.can_end.set()
    working.join()


def test_a_learner_gives_way_to_who_answers_people(
    process: LearnerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.runtime.process.lower_priority", lower_priority)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    working = threading.Thread(target=process.work, args=(measuring("a"),))
    working.start()
    working.join()
    assert Works.niceness == max(before, NICENESS)
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_that_the_storage_fails_is_reported_after_a_pause(
    process: LearnerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is tried three times: at once, they would all fail in the same outage."""
    pauses = list[float]()

    def fails(self: Works, work: Work) -> Measured:
        raise StorageUnavailable("the bucket does not answer")

    monkeypatch.setattr(Works, "work", fails)
    monkeypatch.setattr("cluster.runtime.process.time.sleep", pauses.append)
    for attempt in (1, 2, 9):
        with pytest.raises(StorageUnavailable):
            process.work(measuring("b").model_copy(update={"attempt": attempt}))
    assert pauses == [20, 40, 60]


def test_an_answer_about_what_is_over_is_none(
    process: LearnerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given more while it asks."""

    def answered(self: CoordinatorClient, run_id: str, attempt: int) -> bool:
        process.work(measuring("b"))
        return False

    process.work(measuring("a"))
    assert process._awaited()
    monkeypatch.setattr(CoordinatorClient, "is_current", answered)
    assert process._awaited()


def test_a_learner_answers_the_same_until_it_is_given_more(process: LearnerProcess) -> None:
    first = process.work(measuring("a"))
    assert process.work(measuring("a")) is first
    assert process.work(measuring("b")) is not first


def test_what_is_imported_is_looked_through_once_for_garbage(process: LearnerProcess) -> None:
    process.work(measuring("a"))
    process.work(measuring("b"))
    assert len(gc.get_objects()) < gc.get_freeze_count() / 10


@pytest.mark.parametrize("attempt", [Attempt("5f" * 32, 1), Attempt("run", 12)])
def test_a_learner_is_found_by_its_name(attempt: Attempt) -> None:
    assert attempt_of(name_of(attempt)) == attempt


@pytest.mark.parametrize("name", ["", "coordinator", "predictor", "SERVE_CONTROLLER_ACTOR"])
def test_other_actors_are_no_learners(name: str) -> None:
    assert attempt_of(name) is None
