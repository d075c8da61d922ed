"""Explanations of answers, out of what each vector moved."""

from __future__ import annotations

import torch
from torch import Tensor

from cluster.domain.explanations import BASE, Contribution, Explanation, Logits
from cluster.domain.operations import Candidate
from tacl.evaluation.contributions import Parts
from tacl.heads.columns import Columns


def explained(parts: Parts, names: tuple[str, ...], columns: Columns) -> Explanation:
    """Of one row; `names` of the vectors, in the order of the parts. The classes of all columns
    compete."""
    logits_C, without_TC = parts.answered(columns), parts.without(columns)
    best = int(logits_C.argmax())
    left_out = [(_likeliest(columns, row_C), _share(row_C, best)) for row_C in without_TC]
    figures = zip(
        (BASE, *names),
        parts.lengths(),
        parts.shares(),
        parts.logits(columns),
        [(None, None), *left_out],
        strict=True,
    )
    return Explanation(
        best=_likeliest(columns, logits_C),
        logits=_by_class(columns, logits_C),
        parts=tuple(
            Contribution(
                part=name,
                length=length,
                share=share,
                logits=_by_class(columns, adds_C),
                without=without,
                probability=probability,
            )
            for name, length, share, adds_C, (without, probability) in figures
        ),
    )


def _likeliest(columns: Columns, logits_C: Tensor) -> Candidate:
    place = int(logits_C.argmax())
    task, label = _names(columns)[place]
    return Candidate(task=task, label=label, probability=_share(logits_C, place))


def _share(logits_C: Tensor, place: int) -> float:
    return float(torch.softmax(logits_C, -1)[place])


def _by_class(columns: Columns, logits_C: Tensor) -> Logits:
    found: Logits = {task: {} for task in columns.heads}
    for (task, label), logit in zip(_names(columns), logits_C.tolist(), strict=True):
        found[task][label] = logit
    return found


def _names(columns: Columns) -> list[tuple[str, str]]:
    return [(task, label) for task, labels in columns.classes.items() for label in labels]
