"""What a run may not take of a node."""

from __future__ import annotations

from cluster.runtime.nodes import with_place_kept
from cluster.storage.home import Serving

SERVING = Serving(host="127.0.0.1", port=1, most=2, cpus=2.0, open_to_all=False, gpus=1.0)


def test_the_place_of_a_predictor_that_died_is_kept() -> None:
    assert with_place_kept({}, "here", SERVING) == {"here": {"CPU": 2.0, "GPU": 1.0}}
    other = {"there": {"CPU": 0.5}}
    kept = {"there": {"CPU": 0.5}, "here": {"CPU": 1.5, "GPU": 1.0}}
    assert with_place_kept(other, "here", SERVING) == kept
    assert other == {"there": {"CPU": 0.5}}


def test_predictors_that_live_hold_what_they_have_wherever_they_are() -> None:
    held = {"there": {"CPU": 4.0, "GPU": 2.0}}
    assert with_place_kept(held, "here", SERVING) == held


def test_where_nothing_is_served_nothing_is_kept() -> None:
    assert with_place_kept({}, "here", None) == {}
