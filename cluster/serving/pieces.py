"""A question of many rows goes in pieces, so that nobody waits for all that somebody else asked.
Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from cluster.api.service import Answered, Question

ROWS = 16  # of one user in a pass, and of all in one of large questions


def pieces(question: Question) -> list[Question]:
    """Its inputs in order, those of each piece ROWS rows together, or one input."""
    inputs = question.inputs
    count = max(1, ROWS * len(inputs) // max(1, question.rows))
    return [
        replace(question, inputs=inputs[at : at + count]) for at in range(0, len(inputs), count)
    ]


def joined(answers: Sequence[Answered]) -> Answered:
    """One answer of the answers of all pieces, in order."""
    bases = [one.base for one in answers if one.base is not None]
    features = [one.features for one in answers if one.features is not None]
    return Answered(
        answers=list(chain.from_iterable(one.answers for one in answers)),
        base=list(chain.from_iterable(bases)) if bases else None,
        belonging=list(chain.from_iterable(one.belonging for one in answers)),
        features=list(chain.from_iterable(features)) if features else None,
        explanations=tuple(chain.from_iterable(one.explanations for one in answers)),
    )
