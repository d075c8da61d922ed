"""What a call waits for whose actor is lost, and what is its answer."""

from __future__ import annotations

import math
import pickle
import time

import pytest
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayTaskError

from cluster.domain.outcomes import Lost
from cluster.domain.work import Lease
from cluster.runtime import connection
from cluster.runtime.connection import PAUSE, RetryPolicy
from tacl.errors import StorageUnavailable, UnknownTask


def of_task(cause: Exception) -> RayTaskError:
    return RayTaskError("known", "the trace", cause)


GONE = (ActorUnavailableError("away", b"a" * 16), ValueError("no actor of that name"))


@pytest.mark.parametrize("error", GONE)
def test_a_lost_actor_is_waited_for_until_it_is_late(error: Exception) -> None:
    assert RetryPolicy(60, Lost).after(error) == PAUSE
    with pytest.raises(Lost, match=str(error).split()[0]):
        RetryPolicy(-1, Lost).after(error)


def test_an_answer_is_raised_as_it_was() -> None:
    with pytest.raises(UnknownTask):
        RetryPolicy(60, Lost).after(of_task(UnknownTask("no such task")))
    with pytest.raises(StorageUnavailable):
        RetryPolicy(60, Lost).after(of_task(StorageUnavailable("full")))
    with pytest.raises(GetTimeoutError):
        RetryPolicy(60, Lost).after(GetTimeoutError("slow"))


def test_a_run_waits_for_the_disk_and_meets_defects_as_they_were() -> None:
    run = RetryPolicy(60, Lost, of_run=True)
    assert run.after(of_task(StorageUnavailable("full"))) == PAUSE
    with pytest.raises(KeyError):
        run.after(of_task(KeyError("a defect")))
    with pytest.raises(Lost):
        RetryPolicy(-1, Lost, of_run=True).after(of_task(StorageUnavailable("full")))


class Handle:
    """An actor's handle whose first answers are these errors."""

    def __init__(self, *errors: Exception) -> None:
        self.errors: list[Exception] = list(errors)
        self.lease = self

    def remote(self, *arguments: object) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "shards"


def test_a_run_looks_its_coordinator_up_once_and_again_when_it_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handles = [Handle(), Handle(), Handle()]
    found = iter(handles)
    monkeypatch.setattr(connection, "coordinator", lambda: next(found))
    monkeypatch.setattr(connection.ray, "get", lambda answer: answer)
    monkeypatch.setattr(connection, "PAUSE", 0.0)
    monkeypatch.setattr(connection.CoordinatorClient, "answered", -math.inf)
    run, begun = connection.CoordinatorClient(), time.monotonic()
    for step in range(3):
        assert run(Lease(run_id="run", first=step, last=step, attempt=1)) == "shards"
    assert begun <= connection.CoordinatorClient.answered <= time.monotonic()
    assert vars(pickle.loads(pickle.dumps(run))) == {"_handle": None}  # which stays behind
    handles[0].errors = [ActorUnavailableError("away", b"a" * 16)]
    assert run(Lease(run_id="run", first=3, last=3, attempt=1)) == "shards"
    assert next(found) is handles[2]  # two were looked up in all
