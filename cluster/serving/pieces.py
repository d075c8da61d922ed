"""Splits questions of many rows into pieces, so that nobody waits for all rows of another user.
Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from cluster.api.service import Answered, Question

ROWS = 8  # of one user in a pass
MOST = 64  # rows of a piece, if the encoder is fast
SECONDS = 0.05  # that a piece should take, since others wait for it


def fitting(rows: int, seconds: float) -> int:
    """How many rows, ROWS to MOST, take about SECONDS if a piece of `rows` took `seconds`."""
    return min(MOST, max(ROWS, int(rows * SECONDS / max(seconds, 1e-9))))


def pieces(question: Question, rows: int = ROWS) -> list[Question]:
    """The question in pieces, its inputs in order: each has at most `rows` rows, or one input."""
    inputs = question.inputs
    count = max(1, rows * len(inputs) // max(1, question.rows))
    return [
        replace(question, inputs=inputs[at : at + count]) for at in range(0, len(inputs), count)
    ]


def joined(answers: Sequence[Answered]) -> Answered:
    """The answers of all pieces, in order, as one answer."""
    bases = [one.base for one in answers if one.base is not None]
    features = [one.features for one in answers if one.features is not None]
    return Answered(
        answers=list(chain.from_iterable(one.answers for one in answers)),
        base=list(chain.from_iterable(bases)) if bases else None,
        belonging=list(chain.from_iterable(one.belonging for one in answers)),
        features=list(chain.from_iterable(features)) if features else None,
        explanations=tuple(chain.from_iterable(one.explanations for one in answers)),
        more_classes=max(one.more_classes for one in answers),
    )
