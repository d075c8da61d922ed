"""Which vectors are refused for what they do to inputs."""

from __future__ import annotations

import math

import pytest

from cluster.domain.tasks import Pair
from cluster.learner.interference import MOST, require_bounded
from tacl.errors import RunFailed


def pair(on: str, tau_jp: float) -> Pair:
    return Pair(
        task="news",
        version=0,
        vector_digest="v" * 64,
        on=on,
        shard_digest="s" * 64,
        tau_jp=tau_jp,
        standard_error=0.0,
        rows=64,
    )


@pytest.mark.parametrize("tau_jp", [2 * MOST * 1.01, math.inf, math.nan])
def test_features_that_move_by_far_more_than_they_are_long(tau_jp: float) -> None:
    require_bounded(pair("news", 2 * MOST), feature_norm=2.0)
    with pytest.raises(RunFailed, match="smaller --learning-rate"):
        require_bounded(pair("news", tau_jp), feature_norm=2.0)


def test_the_name_of_another_task_is_not_in_the_refusal() -> None:
    """Who sees the task may not see the other one."""
    for on, named in (("news", "news"), ("ann.secret", "another task")):
        with pytest.raises(RunFailed, match=f"inputs of {named} by"):
            require_bounded(pair(on, 99.0), feature_norm=1.0)
