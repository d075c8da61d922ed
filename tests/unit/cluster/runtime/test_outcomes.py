"""What a coordinator takes the end of a learner for."""

from __future__ import annotations

from typing import Any

import pytest
import ray
from ray.exceptions import RayTaskError

from cluster.domain.outcomes import GaveWay, GivesWay, Gone, Lost, Outcome, Raised
from cluster.runtime.actors import _outcome
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
