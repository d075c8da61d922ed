"""Joint training: ONE tau over the labelled rows of all tasks, the ceiling of every merge (MTL).

The loop is the one of `train`. Rows of all tasks are one data set with classes numbered through,
so that every batch is mixed; each row is judged among the classes of its own task only, as at
evaluation, where the task is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tacl.data.batches import Labelled
from tacl.heads.head import Head, starts, union


@dataclass(frozen=True)
class JointHead:
    """All heads in a row; task_C says to which task a class belongs, sign_T what its loss counts.

    A sign of -1 makes a task one that is to be unlearned.
    """

    head: Head
    task_C: Tensor
    sign_T: Tensor

    @classmethod
    def of(cls, heads: Sequence[Head], signs: Sequence[float] | None = None) -> Self:
        """Heads in order; of different scales each keeps its own logits."""
        signs_T = torch.tensor(signs or [1.0] * len(heads))
        tasks = [task for task, head in enumerate(heads) for _ in head.classes]
        return cls(union(heads), torch.tensor(tasks), signs_T)

    def losses(self, features_BD: Tensor, labels_B: Tensor) -> Tensor:
        """Signed cross-entropy of each row among the classes of its task, [B]."""
        task_B = self.task_C[labels_B]
        foreign_BC = self.task_C != task_B.unsqueeze(1)
        logits_BC = self.head.logits(features_BD).masked_fill(foreign_BC, -torch.inf)
        return self.sign_T[task_B] * cross_entropy(logits_BC, labels_B, reduction="none")

    def to(self, device: torch.device | str) -> Self:
        moved = replace(self, task_C=self.task_C.to(device), sign_T=self.sign_T.to(device))
        return replace(moved, head=self.head.to(device))


def joint_data(parts: Sequence[Labelled], heads: Sequence[Head]) -> Labelled:
    """The rows of all tasks in order, their classes numbered as in `JointHead.of(heads)`."""
    labels = [part.labels + start for part, start in zip(parts, starts(heads), strict=True)]
    return Labelled([item for part in parts for item in part.items], torch.cat(labels))
