"""What a coordinator takes the end of a learner for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import RayTaskError

from cluster.domain.outcomes import GaveWay, GivesWay, Gone, Lost, Outcome, Raised
from cluster.runtime import actors
from cluster.runtime.actors import RayLauncher, _outcome
from tacl.errors import StorageUnavailable


@pytest.mark.parametrize(
    ("raised", "outcome"),
    [
        (GivesWay(), GaveWay()),
        (Lost("a worker was killed"), Gone("a worker was killed")),
        (StorageUnavailable("no disk"), Gone("no disk")),
        (ValueError("no"), Raised("ValueError: no", trace="")),
    ],
)
def test_what_a_learner_raised(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, outcome: Outcome
) -> None:
    def get(answer: object) -> Any:
        raise RayTaskError("work", "where it was raised", raised)

    monkeypatch.setattr(ray, "get", get)
    found = _outcome(object())  # type: ignore[arg-type]
    assert type(found) is type(outcome)
    assert getattr(found, "cause", None) == getattr(outcome, "cause", None)


def test_all_that_runs_is_looked_at_by_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[list[str], int, float]]()

    def wait(answers: list[str], num_returns: int, timeout: float) -> tuple[list[str], list[str]]:
        asked.append((answers, num_returns, timeout))
        return answers[1:], answers[:1]

    monkeypatch.setattr(ray, "wait", wait)
    monkeypatch.setattr(actors, "Assigned", lambda: None)
    launcher = RayLauncher("", "", lambda: None)
    handles: Any = {run: SimpleNamespace(answer=f"of {run}") for run in ("a", "b", "c")}
    assert launcher.ended(handles) == ["b", "c"]
    assert launcher.ended({}) == []  # of which Ray would make an error
    assert asked == [(["of a", "of b", "of c"], 3, 0)]
