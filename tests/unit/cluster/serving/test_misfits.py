"""What is wrong with the heads or the coefficients of one question is not the others' trouble."""

from __future__ import annotations

import pytest
from torch import Tensor

from cluster.api.service import Answered, Question
from cluster.serving.predictor import Predictor
from tacl.compose import terms
from tacl.errors import BadRecipe, BaseMismatch
from tacl.heads.head import Head
from tests.support import tiny
from tests.unit.cluster.serving.test_predictor import scene

__all__ = ["scene"]


def test_heads_that_do_not_fit_are_the_trouble_of_their_question_alone(
    scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, (one, two), predictor = scene
    inputs, _ = tiny.pictures(2, task=1)
    questions = [Question(tiny.composition((1.0, ref)), inputs) for ref in (one, two)]
    fitting, reads = [], Head.of_unit

    def seen(self: Head, *rows: Tensor) -> Tensor:
        fitting.append(self)
        if self is fitting[0]:
            raise BaseMismatch("fitted on other inner blocks")
        return reads(self, *rows)

    monkeypatch.setattr(Head, "of_unit", seen)
    first, second = predictor.answer(questions)
    assert isinstance(first, BaseMismatch)
    assert isinstance(second, Answered)


@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("large", [1e20, 1e37, 1e39])  # features, their squares, or numbers at all
def test_coefficients_that_are_too_large_are_the_trouble_of_their_question_alone(
    scene, large: float, mixed: bool
) -> None:
    """Of models that were composed before such ones were refused."""
    home, (one, two), _ = scene
    predictor = Predictor(str(home.path))
    if not mixed:
        predictor._module = predictor._materials.linearized()
    inputs, _ = tiny.pictures(2, task=1)
    fine = Question(tiny.composition((1.0, one), (0.5, two)), inputs)
    bad = tiny.composition((large, one), (large, two))
    ways = [
        Question(bad, inputs),
        Question(bad, inputs, features=True),
        Question(bad, inputs, way="materialized"),
        Question(bad, inputs, explain=True),
    ]
    first, *found = predictor.answer([fine, *ways])
    assert isinstance(first, Answered)
    expected = predictor.ask(fine)
    assert probabilities(first) == pytest.approx(probabilities(expected), abs=1e-5)
    for refused in [*found, *predictor.answer(ways)]:
        assert isinstance(refused, BadRecipe)
        assert "smaller coefficients" in str(refused)


def test_the_largest_coefficients_of_a_recipe_have_an_answer(scene) -> None:
    _, refs, predictor = scene
    inputs, _ = tiny.pictures(2, task=1)
    found = predictor.ask(
        Question(tiny.composition(*((terms.LARGEST, ref) for ref in refs)), inputs)
    )
    assert sum(probabilities(found)) == pytest.approx(len(inputs))


def probabilities(found: Answered) -> list[float]:
    return [share for row in found.answers for of in row.values() for _, share in sorted(of)]
