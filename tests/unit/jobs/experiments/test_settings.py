"""What a setting decides is kept under a key of its own, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from jobs.experiments.cache import Cell, Cells
from jobs.experiments.catalogue import TABLES
from jobs.experiments.context import Experiment, LoadedBase
from jobs.experiments.methods import METHODS, linear
from jobs.experiments.models import TrainedVector
from jobs.experiments.suites import Source
from jobs.experiments.tables import newcomers
from jobs.experiments.training import joint, refreshed
from tacl.heads.head import text_head
from tests.support import bases, small_suite


def decided(experiment: Experiment, kind: str, cell: Cell) -> dict[str, Any]:
    return json.loads((experiment.cells.folder / kind / f"{cell.key}.json").read_text())["decides"]


def first(method: str, experiment: Experiment) -> TrainedVector:
    """Of the first task; nothing else is trained."""
    train = METHODS[method].train
    assert train is not None
    return train(experiment, "one")


def test_heads_are_of_the_prompts_of_their_tasks(place: Path, tmp_path: Path) -> None:
    """And so is what is trained or learned with them; without prompts nothing is said of any."""
    small_suite.request(place, "out", "addition", [])  # writes the data
    plain = replace(small_suite.suite(tmp_path), base=f"open_clip:{bases.clip(tmp_path)}")
    prompts = ("one {}.", "a sketch of {}")
    told = replace(plain, tasks=(Source("one", templates=prompts), *plain.tasks[1:]))
    without = Experiment(plain, 0, place / "data", Cells(tmp_path / ".cells"), LoadedBase.of(plain))
    experiment = without.of(told)
    for of, templates in ((without, None), (experiment, prompts)):
        expected = text_head(of.backbone, of.rows("one").classes, templates)
        assert torch.equal(of.head("one").weight_CD, expected.weight_CD)
    assert not torch.equal(without.head("one").weight_CD, experiment.head("one").weight_CD)
    vectors = {of: [linear(of, task) for task in ("one", "two")] for of in (without, experiment)}
    assert vectors[without][0].key != vectors[experiment][0].key
    assert vectors[without][1].key == vectors[experiment][1].key
    assert "templates" not in decided(without, "vector", vectors[without][0].cell)
    adapted = TABLES["test-time"].entry(without, "linear")
    assert adapted.numbers.keys() == {column.key for column in newcomers.TIME_COLUMNS}
    assert all(value is not None for value in adapted.numbers.values())
    both = [joint(of, "ordinary").key for of in (without, experiment)]
    fitted = [newcomers.shots(of, vectors[of][1:], "one", 1).key for of in (without, experiment)]
    assert len({*both, *fitted}) == 4


def test_statistics_take_four_times_the_strength_of_samples(experiment: Experiment) -> None:
    vector = first("curvature", experiment)
    decides = decided(experiment, "vector", vector.cell)
    assert decides["config"]["penalty"] == "curvature"
    assert decides["config"]["strength"] == 4 * experiment.suite.strength


def test_mixed_is_another_training_than_cyclical_against_the_same_tasks(
    experiment: Experiment,
) -> None:
    vectors = (first(name, experiment) for name in ("taujp", "mixed"))
    cyclical, mixed = (decided(experiment, "vector", vector.cell) for vector in vectors)
    assert mixed == {**cyclical, "config": {**cyclical["config"], "penalty": "mixed"}}


def test_a_strength_that_grows_is_a_training_of_its_own(experiment: Experiment) -> None:
    """And that of the others is decided by what it always was: their cells stay."""
    vectors = (first(name, experiment) for name in ("taujp", "taujp-grown"))
    given, grown = (decided(experiment, "vector", vector.cell) for vector in vectors)
    assert grown == {**given, "config": {**given["config"], "grow_strength": True}}
    assert "grow_strength" not in given["config"]


def test_only_the_linearized_model_is_trained_in_the_precision_of_the_suite(
    experiment: Experiment,
) -> None:
    """Which each cell tells; cells of the other precision stay where they are."""
    half = experiment.of(replace(experiment.suite, precision="bfloat16"))
    vectors = {of: first("linear", of) for of in (experiment, half)}
    ways = [decided(experiment, "vector", one.cell)["config"] for one in vectors.values()]
    assert ways[1] == {**ways[0], "precision": "bfloat16"}
    assert ways[0]["precision"] == "float32"
    again = {of: refreshed(of, one, ["two"]).refresh for of, one in vectors.items()}
    told = [decided(experiment, "refresh", one)["precision"] for one in again.values() if one]
    assert told == ["float32", "bfloat16"]
    ordinary = [first("ordinary", of).key for of in (experiment, half)]
    assert len(set(ordinary)) == 1
    learned = [newcomers.shots(of, [one], "target", 1).cell for of, one in vectors.items()]
    assert [one.facts["precision"] for one in learned] == ["float32", "bfloat16"]


def test_a_vector_refreshed_again_is_held_to_what_it_was_at_first(experiment: Experiment) -> None:
    first = linear(experiment, "one")
    once = refreshed(experiment, first, ["two"])
    assert once.key != first.key  # accepted
    again = refreshed(experiment, once, ["two", "three"])
    assert (once.first, again.first) == (first.cell, first.cell)
    assert once.refresh is not None
    assert "first" not in decided(experiment, "refresh", once.refresh)
    assert again.refresh is not None
    assert decided(experiment, "refresh", again.refresh)["first"] == first.key
    assert again.refresh.facts["before"]["own"] == pytest.approx(
        once.refresh.facts["after"]["own"], rel=1e-3
    )
