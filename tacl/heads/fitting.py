"""Heads fitted again: one softmax over the classes of several tasks, on labelled rows under sums.

A head that is made before training knows class names or means of f(x; theta0), and nothing of what
the vectors do. Once vectors are there, each task's labelled rows are seen as models see them:
f + J (tau_t + sum of some other vectors). Which others is drawn anew for every group of rows, so
that a task's columns hold in whatever sum its vector stands, and a user's model takes the columns
of its tasks (results/heads-choice.md has what other ways gave).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacl.heads.calibration import inverse_temperature
from tacl.heads.head import Head, beside, union
from tacl.heads.probe import chosen_probe

DRAWS = 8  # sums of vectors under which the rows of a task are seen


@dataclass(frozen=True)
class Rows:
    """features_ND of labelled rows of one task, labels_N among its classes."""

    features_ND: Tensor
    labels_N: Tensor


def drawn_sums(tasks: Sequence[str]) -> list[frozenset[str]]:
    """DRAWS sets of tasks whose vectors are summed: every second is of all tasks, the others are of
    all sizes alike. A function of the tasks' names, whatever their order."""
    return [
        frozenset(tasks) if draw % 2 == 0 else _some(sorted(tasks), f"sum 0 {draw}")
        for draw in range(DRAWS)
    ]


def _some(names: Sequence[str], seed: str) -> frozenset[str]:
    chance = random.Random(seed)
    share = chance.random()
    return frozenset(name for name in names if chance.random() < share)


def fitted_heads(
    trained: Mapping[str, Head],
    train: Mapping[str, Rows],
    validation: Mapping[str, Rows],
) -> dict[str, Head]:
    """The columns of every task, from one multinomial logistic regression over all of them.

    It is drawn towards the heads that the vectors were `trained` under. Its weight decay and its
    temperature are those that validation rows find least surprising, these with one more row of any
    class (after Platt, 1999), so that few rows that are all right make nobody sure. The scale of a
    head holds the temperature: the softmax over columns of several tasks is P(task, class | x).
    """
    prior, columns, start = union(list(trained.values())), {}, 0
    for task, head in trained.items():
        columns[task] = slice(start, start + len(head.classes))
        start += len(head.classes)

    def pooled(rows: Mapping[str, Rows]) -> tuple[Tensor, Tensor]:
        labels = [rows[task].labels_N + columns[task].start for task in trained]
        return torch.cat([rows[task].features_ND for task in trained]), torch.cat(labels)

    judged = pooled(validation)
    found, _ = chosen_probe(pooled(train), judged, prior.classes, prior=prior)
    logits_NC, smoothing = found.logits(judged[0].float()), 1 / (len(judged[1]) + 1)
    scale = found.scale * inverse_temperature(logits_NC, judged[1], smoothing=smoothing)
    return {
        task: Head(found.weight_CD[own], scale, trained[task].classes)
        for task, own in columns.items()
    }


def answering_heads(
    trained: Mapping[str, Head],
    train: Mapping[str, tuple[Rows, Rows]],
    validation: Mapping[str, tuple[Rows, Rows]],
) -> dict[str, Head]:
    """The same from rows at theta0 and under sums, side by side; with the weights for the latter
    alone."""
    narrow = fitted_heads(trained, _under_sums(train), _under_sums(validation))
    padded = {task: _padded(head) for task, head in trained.items()}
    wide = fitted_heads(padded, views(train), views(validation))
    return {
        task: replace(head, narrow_CD=narrow[task].scale / head.scale * narrow[task].weight_CD)
        for task, head in wide.items()
    }


def views(pairs: Mapping[str, tuple[Rows, Rows]]) -> dict[str, Rows]:
    """Rows of every task as the heads see them."""
    return {
        task: Rows(beside(plain.features_ND, moved.features_ND), moved.labels_N)
        for task, (plain, moved) in pairs.items()
    }


def _under_sums(pairs: Mapping[str, tuple[Rows, Rows]]) -> dict[str, Rows]:
    return {task: moved for task, (_, moved) in pairs.items()}


def _padded(head: Head) -> Head:
    """The same logits from the three views, whose length is the root of 3."""
    nothing_CD = torch.zeros_like(head.weight_CD)
    weight_CD = torch.cat([math.sqrt(3) * head.weight_CD, nothing_CD, nothing_CD], -1)
    return replace(head, weight_CD=weight_CD)
