"""Explanations of answers, from the contribution of each vector."""

from __future__ import annotations

import torch
from torch import Tensor

from cluster.domain.explanations import BASE, Contribution, Explanation, Logits
from cluster.domain.operations import Candidate
from tacl.evaluation.contributions import Contributions
from tacl.heads.columns import Columns

Classes = list[tuple[str, str]]  # task and class of each column


def explained(parts: Contributions, names: tuple[str, ...], columns: Columns) -> Explanation:
    """The explanation of one row, in which the classes of all columns compete. `names`: of the
    vectors, in the order of `parts`."""
    classes = [(task, label) for task, labels in columns.classes.items() for label in labels]
    logits_C, without_TC = parts.answered(columns), parts.without(columns)
    best = int(logits_C.argmax())
    left_out = [(_likeliest(classes, row_C), _share(row_C, best)) for row_C in without_TC]
    figures = zip(
        (BASE, *names),
        parts.lengths(),
        parts.shares(),
        parts.logits(columns),
        [(None, None), *left_out],
        strict=True,
    )
    return Explanation(
        best=_likeliest(classes, logits_C),
        logits=_by_class(classes, logits_C),
        parts=tuple(
            Contribution(
                part=name,
                length=length,
                share=share,
                logits=_by_class(classes, adds_C),
                without=without,
                probability=probability,
            )
            for name, length, share, adds_C, (without, probability) in figures
        ),
    )


def _likeliest(classes: Classes, logits_C: Tensor) -> Candidate:
    place = int(logits_C.argmax())
    task, label = classes[place]
    return Candidate(task=task, label=label, probability=_share(logits_C, place))


def _share(logits_C: Tensor, place: int) -> float:
    return float(torch.softmax(logits_C, -1)[place])


def _by_class(classes: Classes, logits_C: Tensor) -> Logits:
    found: Logits = {}
    for (task, label), logit in zip(classes, logits_C.tolist(), strict=True):
        found.setdefault(task, {})[label] = logit
    return found
