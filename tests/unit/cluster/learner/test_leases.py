"""A training asks for the steps of some seconds at once, and never for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.coordinator import arrivals
from cluster.coordinator.arrivals import Arrivals
from cluster.domain.outcomes import GivesWay
from cluster.domain.tasks import Shard, Submission
from cluster.domain.work import Lease, Leave
from cluster.learner import training
from cluster.storage.checkpoints import checkpoints
from cluster.storage.home import Home
from tests.support import tiny
from tests.support.kept import newest
from tests.support.learned import train

STEPS = 14


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return tiny.home(tmp_path)


def new_task(home: Home, number: int, **chosen: Any) -> Submission:
    options = {"steps": STEPS, "learning_rate": 1e-3, "strength": 0.1, "engine": "plain"}
    return tiny.submission(home, number, noise=90, **(options | chosen))


@pytest.mark.parametrize("seconds", [2.0, -1.0])
def test_who_asks_for_steps_tells_of_the_one_before(
    home: Home, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Once for as many seconds as it was told; where a step takes longer, for every one."""
    monkeypatch.setattr(tiny.LeaseClient, "seconds", seconds)
    teller = tiny.LeaseClient(tiny.generic(home))
    train(home, new_task(home, 3), teller)
    steps = [step for step, _ in teller.asked]
    assert steps[:2] == [0, 1]  # how long one takes is found out
    assert steps == list(range(STEPS)) if seconds < 0 else len(steps) < STEPS
    reports = [progress for _, progress in teller.asked]
    assert reports[0] is None
    assert [report.step for report in reports if report] == steps[1:]
    assert all(report.steps == STEPS and (report.loss or 0) > 0 for report in reports if report)


def test_a_lease_is_of_as_many_seconds_and_of_one_step_at_least() -> None:
    assert training.leased(0, 0.0, 2.0, 100) == 1
    assert training.leased(4, 0.4, 2.0, 100) == 20
    assert training.leased(4, 0.4, 8.0, 100) == 80
    assert training.leased(4, 0.4, 2.0, 7) == 7
    assert training.leased(1, 60.0, 2.0, 100) == 1


def test_a_lease_is_as_long_as_the_coordinator_said_with_the_one_before(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = list[float]()

    def leased(done: int, took: float, wanted: float, left: int) -> int:
        seconds.append(wanted)
        return min(5, left)

    class Longer(tiny.LeaseClient):
        def __call__(self, asked: Lease) -> Leave:
            self.seconds += 1
            return super().__call__(asked)

    monkeypatch.setattr(training, "leased", leased)
    train(home, new_task(home, 1), Longer(tiny.generic(home)))
    assert seconds == [0.0, 3.0, 4.0]


class Removing(tiny.LeaseClient):
    """The first of its shards is gone with the second lease."""

    arrivals: Arrivals

    def __call__(self, asked: Lease) -> Leave:
        if not asked.first:
            self.arrivals = Arrivals()
        current = self.shards[1:] if asked.first else self.shards
        change = self.arrivals.change(asked.first, current, [shard.task for shard in self.shards])
        self.arrivals.record(change, asked.last)
        return Leave(self.arrivals.after(asked.since), self.seconds)


def test_samples_that_steps_see_no_more_are_not_kept(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a task that was removed, or of before it had more."""
    shards = [tiny.shard_of(new_task(home, number), ordinal=number) for number in (2, 3)]
    runs, result = list[training.TrainingState](), training._result
    monkeypatch.setattr(training, "leased", lambda done, took, seconds, left: min(5, left))
    monkeypatch.setattr(
        training, "_result", lambda run, *rest: (runs.append(run), result(run, *rest))[1]
    )
    train(home, new_task(home, 1), Removing(*shards))
    assert [store.name for store in runs[0]._stores.values()] == [shards[1].task]


class Recording(tiny.LeaseClient):
    """Remembers what it told, as the coordinator does. The newcomer is there when the second lease
    is asked for; the third is recorded, and its answer lost."""

    def __init__(self, generic: Shard, newcomer: Shard) -> None:
        super().__init__(generic)
        self.arrivals, self.there, self.leases = Arrivals(), [[generic], [newcomer]], 0

    def __call__(self, asked: Lease) -> Leave:
        self.leases += 1
        current = self.there.pop(0) if self.there else []
        change = self.arrivals.change(asked.first, current, [shard.task for shard in current])
        self.arrivals.record(change, asked.last)
        if self.leases == 3:
            raise ConnectionError("the answer was lost")
        return Leave(self.arrivals.after(asked.since), self.seconds)


def test_a_run_that_died_in_a_lease_goes_on_with_the_same_numbers(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the leases of the second attempt begin and end at other steps."""
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)  # one at every lease
    task, generic = new_task(home, 1), tiny.generic(home)
    newcomer = tiny.shard_of(new_task(home, 2), ordinal=2)
    whole = train(home, task, tiny.LeaseClient(generic, newcomer=newcomer, joining=5))
    store = checkpoints(home, tiny.train_work(home, task).run_id)
    store.clear()
    teller = Recording(generic, newcomer)
    monkeypatch.setattr(training, "leased", lambda done, took, seconds, left: min(5, left))
    with pytest.raises(ConnectionError):
        train(home, task, teller)
    assert newest(store) == 5
    monkeypatch.setattr(training, "leased", lambda done, took, seconds, left: min(3, left))
    resumed = train(home, task, teller, attempt=2)
    assert resumed.vector_digest == whole.vector_digest
    assert resumed.curves == whole.curves
    assert teller.leases == 3 + 3


class Wanted(tiny.LeaseClient):
    """Somebody waits for the place of the run, all the time."""

    def __call__(self, asked: Lease) -> Leave:
        return super().__call__(asked)._replace(gives_way=True)


def test_a_run_that_gives_its_place_back_goes_on_with_the_same_numbers(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "leased", lambda done, took, seconds, left: min(5, left))
    task, generic = new_task(home, 1), tiny.generic(home)
    store = checkpoints(home, tiny.train_work(home, task).run_id)
    whole = train(home, task, Wanted(generic))  # which is over before its place was kept for long
    store.clear()
    monkeypatch.setattr(training, "HELD_SECONDS", -1.0)
    with pytest.raises(GivesWay):
        train(home, task, Wanted(generic), attempt=2)
    assert newest(store) == 5  # nothing that it did is done again
    with pytest.raises(GivesWay):
        train(home, task, Wanted(generic), attempt=3)
    assert newest(store) == 10  # every attempt does something
    resumed = train(home, task, tiny.LeaseClient(generic), attempt=4)
    assert resumed.vector_digest == whole.vector_digest
    assert resumed.curves == whole.curves


class Paged(tiny.LeaseClient):
    """Of those who wait, one joins at each lease, and a page is one."""

    def __init__(self, waiting: list[Shard]) -> None:
        super().__init__(waiting[0])
        self.arrivals, self.waiting, self.leases = Arrivals(), waiting, list[tuple[int, int, int]]()

    def __call__(self, asked: Lease) -> Leave:
        self.leases.append((asked.first, asked.last, asked.since))
        if not self.arrivals.is_replayed(asked.last):
            now, self.waiting = self.waiting[:1], self.waiting[1:]
            change = self.arrivals.change(asked.first, now, [shard.task for shard in now])
            self.arrivals.record(change, asked.last)
        return Leave(self.arrivals.after(asked.since), self.seconds)


def test_while_more_is_to_be_told_a_lease_is_of_one_step(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (training, arrivals):
        monkeypatch.setattr(module, "PAGE", 1)
    monkeypatch.setattr(training, "leased", lambda done, took, seconds, left: min(5, left))
    others = [tiny.shard_of(new_task(home, n), ordinal=n) for n in (2, 4)]
    teller = Paged([tiny.generic(home), *others])
    train(home, new_task(home, 1), teller)
    assert teller.leases[:2] == [(0, 4, -1), (0, 4, 0)]  # the first page, and what is behind it
    assert teller.leases[2:6] == [(5, 5, 4), (5, 5, 5), (6, 6, 5), (6, 6, 6)]
    assert teller.leases[6:] == [(7, 7, 6), (8, 12, 7), (13, 13, 12)]


def test_once_it_knows_a_task_for_each_step_that_is_left_leases_are_as_long_as_ever(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (training, arrivals):
        monkeypatch.setattr(module, "PAGE", 1)
    monkeypatch.setattr(training, "leased", lambda done, took, seconds, left: min(2, left))
    others = [tiny.shard_of(new_task(home, n), ordinal=n) for n in range(2, 9)]
    teller = Paged([tiny.generic(home), *others])
    train(home, new_task(home, 1, steps=8, penalty="cyclical"), teller)
    leases = list(dict.fromkeys((first, last) for first, last, _ in teller.leases))
    assert leases == [(0, 1), (2, 2), (3, 3), (4, 4), (5, 6), (7, 7)]
    assert teller.waiting  # of whom it was not told


@pytest.mark.parametrize("penalty", ["strict", "curvature"])
def test_penalties_of_all_tasks_hear_of_all(penalty: str) -> None:
    known, left = [object()] * 1000, 3
    assert not training.is_enough(penalty, known, left, 16)
    assert training.is_enough("cyclical", known, left, 16)
    assert training.is_enough("mixed", known, left, 16)
    assert not training.is_enough("mixed", known, 63, 16)
    assert training.is_enough("none", [], left, 16)
