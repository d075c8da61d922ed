"""How many probabilities an answer tells: of very many it would be megabytes, which keep
everybody waiting while they are read, checked and written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.api.service import Question
from tests.support import tiny
from tests.unit.cluster.serving.test_predictor import scene

__all__ = ["scene"]


@pytest.mark.parametrize("named", [None, ["task1", "task2"]])
@pytest.mark.parametrize(("told", "each"), [(8, 4), (7, 3), (1, 1)])
def test_of_more_classes_than_are_told_the_likeliest_of_each_task_are(
    scene, named: list[str] | None, told: int, each: int
) -> None:
    _, (one, two), predictor = scene
    model, inputs = tiny.composition((1.0, one), (1.0, two)), tiny.pictures(3, task=1)[0]
    asked = Question(model, inputs, named, beside_base=True)
    every, few = predictor.answer([asked, replace(asked, told=told)])
    for part in ("answers", "base"):
        for row, cut in zip(getattr(every, part), getattr(few, part), strict=True):
            assert cut == {task: ranked[:each] for task, ranked in row.items()}
    assert (every.more_classes, few.more_classes) == (0, 2 * (4 - each))
    assert few.to_reply(asked, 0.1).best == every.to_reply(asked, 0.1).best
