"""From a submitter's options to the configuration of a training."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cluster.domain.tasks import Options
from cluster.learner.training import configuration


@pytest.mark.parametrize(
    ("head_kind", "strength", "expected"),
    [("text", None, 3.0), ("prototype", None, 1.0), ("prototype", 3.0, 3.0), ("text", 0.0, 0.0)],
)
def test_lambda_is_what_is_asked_for_or_what_suits_the_base(
    head_kind: str, strength: float | None, expected: float
) -> None:
    base: Any = SimpleNamespace(trainable=("*",), head_kind=head_kind)
    found = configuration(Options(strength=strength), 1000, base)
    assert (found.strength, found.trainable) == (expected, ("*",))
