"""What decides a run: refused values, identity, the schedule, the rule of the defaults."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacl.errors import BadConfig
from tacl.training.config import RefreshConfig, TrainConfig, default_config, schedule

CONFIG = TrainConfig(
    steps=100, learning_rate=1e-3, strength=1.0, seed=0, trainable=("encoder.*",), accumulation=2
)
OTHER: dict[str, Any] = {
    "trainable": ("*",),
    "precision": "bfloat16",
    "penalty": "strict",
    "norm": "l2",
    "warmup_fraction": 0.2,
    "grow_strength": True,
}


@pytest.mark.parametrize(
    "name", ["steps", "learning_rate", "batch", "penalty_batch", "accumulation", "clip"]
)
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_what_must_be_positive(name: str, value: float) -> None:
    with pytest.raises(BadConfig, match=f"{name} is {value}; it must be positive and finite"):
        replace(CONFIG, **{name: value})


@pytest.mark.parametrize("name", ["strength", "weight_decay"])
@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_what_must_not_be_negative(name: str, value: float) -> None:
    with pytest.raises(BadConfig, match=f"{name} is {value}; it must be finite, and not negative"):
        replace(CONFIG, **{name: value})
    replace(CONFIG, **{name: 0.0})


@pytest.mark.parametrize("name", ["steps", "batch"])
def test_what_must_be_whole(name: str) -> None:
    with pytest.raises(BadConfig, match=f"{name} is 50.0; it must be a whole number"):
        default_config(1000, 0, ("*",), "text", **{name: 50.0})
    default_config(1000, 0, ("*",), "text", **{name: np.int64(50)})  # as a grid of numpy's


@pytest.mark.parametrize("name", ["penalty", "norm", "precision"])
def test_what_is_of_no_known_kind(name: str) -> None:
    with pytest.raises(BadConfig, match=f"{name} is 'Mixed'; it must be one of "):
        replace(CONFIG, **{name: "Mixed"})


def test_more_micro_batches_than_rows_are_refused() -> None:
    with pytest.raises(BadConfig, match="9 micro-batches of a batch of 8 rows"):
        replace(CONFIG, batch=8, accumulation=9)
    replace(CONFIG, batch=8, accumulation=8)


def test_every_field_is_part_of_the_identity() -> None:
    for field in fields(TrainConfig):
        value = getattr(CONFIG, field.name)
        changed = replace(CONFIG, **{field.name: OTHER.get(field.name, value)})
        if field.name not in OTHER:
            changed = replace(CONFIG, **{field.name: value + 1})
        assert changed.digest() != CONFIG.digest(), field.name


def test_equal_configurations_have_one_digest_that_is_written_down() -> None:
    assert replace(CONFIG).digest() == CONFIG.digest()
    again = json.loads(json.dumps(CONFIG.as_dict()))
    assert TrainConfig(**{**again, "trainable": tuple(again["trainable"])}) == CONFIG
    assert RefreshConfig(**json.loads(json.dumps(RefreshConfig(seed=3).as_dict()))).seed == 3


def test_what_is_younger_than_a_run_does_not_change_its_identity() -> None:
    """Finished runs and cells of tables are found under it."""
    assert CONFIG.digest() == "0f1aeee54e4a15310c0f794f63380cae9fdcc1e49827287d764619874ba54302"
    rule = "b44b0b459fc679be3d95db2201619529a8a9c83e79a6b02c9e6e65a9afd7043c"
    assert default_config(1000, 0, ("*",)).digest() == rule


@given(st.integers(1, 100))
def test_a_strength_that_grows_is_the_given_one_for_eight_others(others: int) -> None:
    config = replace(CONFIG, strength=3.0, grow_strength=True)
    assert config.strength_against(others) == pytest.approx(3.0 * others / 8)
    assert config.strength_against(8) == 3.0
    assert CONFIG.strength_against(others) == CONFIG.strength


steps = st.integers(1, 20000)


@given(steps, st.floats(0, 0.9), st.floats(1e-6, 1))
def test_the_rate_rises_to_its_peak_and_falls(steps: int, warmup: float, peak: float) -> None:
    warm = min(500, math.ceil(warmup * steps))
    places = sorted({*range(0, steps, max(1, steps // 50)), warm - 1, warm, steps - 1})
    rates = [(step, schedule(peak, step, steps, warmup)) for step in places if 0 <= step < steps]
    assert all(0 < rate <= peak * (1 + 1e-12) for _, rate in rates)
    before = [rate for step, rate in rates if step < warm]
    after = [rate for step, rate in rates if step >= warm]
    assert before == sorted(before)
    assert after == sorted(after, reverse=True)
    assert schedule(peak, min(warm, steps - 1), steps, warmup) == pytest.approx(peak)


def test_warm_up_is_linear_and_the_cosine_is_half_way_in_the_middle() -> None:
    assert [schedule(1.0, step, 100, 0.1) for step in (0, 4, 9)] == pytest.approx([0.1, 0.5, 1.0])
    assert schedule(1.0, 10 + 45, 100, 0.1) == pytest.approx(0.5)
    assert schedule(1.0, 100, 100, 0.1) == pytest.approx(0.0)


def test_warm_up_is_at_most_500_steps() -> None:
    assert schedule(1.0, 499, 10_000, 0.1) == 1.0
    assert schedule(1.0, 498, 10_000, 0.1) < 1.0
    assert schedule(1.0, 600, 10_000, 0.1) < 1.0


@given(st.integers(1, 10**6), st.integers(0, 9))
def test_the_rule_fits_every_size(rows: int, seed: int) -> None:
    config = default_config(rows, seed, ("*",))
    assert (config.seed, config.trainable) == (seed, ("*",))
    assert (config.penalty, config.penalty_batch) == ("mixed", config.batch // 2)
    assert config.strength > 0
    assert config == default_config(rows, seed, ("*",))
    assert config.steps <= default_config(2 * rows, seed, ("*",)).steps


def test_what_is_given_wins_and_none_leaves_it_to_the_rule() -> None:
    rule = default_config(1000, 0, ("*",))
    assert default_config(1000, 0, ("*",), steps=None, norm=None, batch=None) == rule
    given = default_config(1000, 0, ("*",), steps=7, norm="l2", penalty="strict", strength=0.0)
    assert (given.steps, given.norm, given.penalty, given.strength) == (7, "l2", "strict", 0.0)


def test_the_rule_is_stronger_where_statistics_take_the_place_of_samples() -> None:
    rule = default_config(1000, 0, ("*",))
    assert default_config(1000, 0, ("*",), penalty="curvature").strength == 4 * rule.strength
    given = default_config(1000, 0, ("*",), penalty="curvature", strength=2.0)
    assert given.strength == 2.0


def test_lambda_suits_the_heads_of_the_base() -> None:
    assert default_config(1000, 0, ("*",), "text").strength == 3.0
    assert default_config(1000, 0, ("*",), "prototype").strength == 1.0
    assert default_config(1000, 0, ("*",), "prototype", strength=3.0).strength == 3.0


@pytest.mark.parametrize(("batch", "mixed", "of_one"), [(4, 2, 1), (64, 32, 8), (1, 1, 1)])
def test_penalty_rows_are_a_share_of_the_batch(batch: int, mixed: int, of_one: int) -> None:
    assert default_config(1000, 0, ("*",), batch=batch).penalty_batch == mixed
    for penalty in ("cyclical", "strict"):
        found = default_config(1000, 0, ("*",), batch=batch, penalty=penalty)
        assert found.penalty_batch == of_one


def test_two_passes_over_the_rows_within_bounds() -> None:
    assert [default_config(rows, 0, ("*",)).steps for rows in (10, 3200, 10**6)] == [100, 400, 2000]


def test_what_is_given_is_checked() -> None:
    with pytest.raises(BadConfig, match="steps is 0"):
        default_config(1000, 0, ("*",), steps=0)
