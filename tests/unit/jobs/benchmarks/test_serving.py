"""The load test's parts that need no server: recipes, what is right, what is written."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from jobs.benchmarks.load import OF_EACH, LoadPlan, LoadResult, is_close, recipe_of
from jobs.benchmarks.serving import ServingReport, facts, written


def test_every_user_has_another_recipe() -> None:
    recipes = [tuple(recipe_of(user).items()) for user in range(1000)]
    assert len(set(recipes)) == 1000
    assert {len(recipe) for recipe in recipes} == {OF_EACH}
    assert recipe_of(7) == recipe_of(7)


def test_an_answer_is_right_only_with_every_class_of_every_task() -> None:
    expected = {"a": {"x": 0.75, "y": 0.25}, "b": {"z": 1.0}}
    right = {"a": [["y", 0.25001], ["x", 0.74999]], "b": [["z", 1.0]]}
    assert is_close(expected, right)
    assert not is_close(expected, right | {"a": [["y", 0.75], ["x", 0.25]]})
    assert not is_close(expected, right | {"a": [["x", 0.75]]})
    assert not is_close(expected, right | {"c": []})
    assert not is_close(expected, {"a": right["a"]})


def test_one_request_has_figures_too() -> None:
    one = facts(1, LoadPlan(1, 1), 2.0, LoadResult([0.25]))
    assert (one.p50, one.p95, one.p99, one.longest) == (0.25, 0.25, 0.25, 0.25)


def test_what_is_written_has_every_figure() -> None:
    load = facts(10, LoadPlan(3, 32), 2.0, LoadResult([0.1, 0.2, 0.3]))
    tally = LoadResult([0.1, 0.2, 9.0], 1, Counter({"503": 7}), Counter(predictor=2))
    under = facts(1000, LoadPlan(3, 32, pictures=4, kills=2), 6.0, tally)
    warm = replace(load, cpu=0.02, cold=0.05, bytes_per_user=812.0)
    echo = replace(load, cpu=0.002)
    found = ServingReport({"one model": 100.0, "mixed": 125.0}, 0.6, 32, 0, [warm], echo, under)
    text = written(found, "tacl bench serve")
    assert "| 10 | 3 | 1.5 | 20 | 200 | 290 | 298 | 300 | 50 | 812 | 0 |" in text
    assert "0.60 of one model for all rows: 1.20 of" in text
    for part in (
        "| our server, 10 users | 1.5 | 20 | 200 | 298 |",
        "| echo | 1.5 | 2 | 200 | 298 |",
        "Around the pass (8 ms a row) our server takes 6.00 times",
        "about 12 pictures",
        "Wrong answers: 1",
        "2 of the predictor",
        "7 times 503",
        "the longest 9000 ms",
    ):
        assert part in text
