"""How much an explanation may be: of hundreds of vectors and thousands of classes it would be
gigabytes, for one input."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from cluster.api import limits
from cluster.api.service import Question
from cluster.serving.predictor import Predictor
from tacl.errors import TooLarge
from tacl.heads.columns import Columns
from tacl.heads.head import Head
from tests.unit.cluster.serving.test_pieces import model


class Opening(Predictor):
    """Of a home whose tasks have so many classes each."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes

    def _columns(self, question: Question) -> Columns:
        heads = {
            task: Head(torch.ones(size, 2), 1.0, tuple(map(str, range(size))))
            for task, size in self._sizes.items()
            if task in (question.tasks or self._sizes)
        }
        return Columns(heads)

    def _recipe(self, model: object) -> dict[str, float]:
        return {}


def test_of_very_many_vectors_and_classes_a_task_is_to_be_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "EXPLAINED_NUMBERS", 5 * 4)  # the answer, the base, three vectors
    predictor, asked = Opening({"large": 4, "small": 2}), Question(model(3), ["x"], explain=True)
    refused = predictor._opened(asked, [])
    assert isinstance(refused, TooLarge)
    assert "3 vectors add to each of 6 classes" in str(refused)
    within = Question(model(3), ["x"], ["large"], explain=True)
    answered = Question(model(3), ["x"])
    for fine in (within, answered):
        assert not isinstance(predictor._opened(fine, []), Exception)
