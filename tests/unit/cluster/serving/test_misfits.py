"""What is wrong with one question's heads is not the others' trouble."""

from __future__ import annotations

import pytest
from torch import Tensor

from cluster.api.service import Answered, Question
from tacl.errors import BaseMismatch
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
