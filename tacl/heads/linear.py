"""Heads that are affine in phi(z), over the classes of several tasks: what a solve gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacl.heads.expansion import Expansion


@dataclass(frozen=True)
class LinearHead:
    """logits = phi(z) W' + b, features as they are; `tasks` says how many columns are whose.

    Task known: the columns of that task alone, by `of`. Task unknown: all of them.
    """

    weight_CD: Tensor
    bias_C: Tensor
    tasks: Mapping[str, int]
    expansion: Expansion

    def logits(self, features_BD: Tensor) -> Tensor:
        """[B, C]."""
        return self.expansion(features_BD) @ self.weight_CD.T + self.bias_C

    def columns(self, task: str) -> slice:
        names = list(self.tasks)
        start = sum(self.tasks[name] for name in names[: names.index(task)])
        return slice(start, start + self.tasks[task])

    def of(self, task: str) -> LinearHead:
        weight_CD, bias_C = self.weight_CD[self.columns(task)], self.bias_C[self.columns(task)]
        return replace(self, weight_CD=weight_CD, bias_C=bias_C, tasks={task: self.tasks[task]})


def side_by_side(heads: Sequence[LinearHead]) -> LinearHead:
    """All columns in the order given; the heads must be of one expansion and of different tasks."""
    return LinearHead(
        torch.cat([head.weight_CD for head in heads]),
        torch.cat([head.bias_C for head in heads]),
        {task: size for head in heads for task, size in head.tasks.items()},
        heads[0].expansion,
    )
