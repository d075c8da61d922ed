"""The load test's parts that need no server: recipes, the oracle, what is written."""

from __future__ import annotations

from jobs.bench.serving import OF_EACH, Load, recipe_of, written


def test_every_user_has_another_recipe() -> None:
    recipes = [tuple(recipe_of(user).items()) for user in range(1000)]
    assert len(set(recipes)) == 1000
    assert {len(recipe) for recipe in recipes} == {OF_EACH}
    assert recipe_of(7) == recipe_of(7)


def test_what_is_written_has_every_figure() -> None:
    load = Load(10, 3, 2.0, (0.1, 0.2, 0.3), 0, 812.0, 0.05)
    found = {
        "vectors": 8,
        "of_each": 4,
        "rows_per_second": {"one model": 100.0, "mixed": 60.0},
        "share": 0.6,
        "of_the_best": 1.2,
        "at_once": 32,
        "loads": [load.facts()],
    }
    text = written(found)
    assert "| 10 | 3 | 1.5 | 200 | 290 | 298 | 50 | 812 | 0 |" in text
    assert "0.60 of one model" in text
