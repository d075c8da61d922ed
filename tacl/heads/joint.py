"""Joint training: ONE tau over the labelled rows of all tasks, the upper bound of merges (MTL).

The loop is that of `train`. Rows of all tasks form one data set with classes numbered across tasks,
so that every batch is mixed; the loss of a row is over the classes of its own task only, as at
evaluation with the task known.
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
    """All heads joined; task_C gives the task of each class, sign_T the factor of a task's loss.

    A sign of -1 makes a task one to be unlearned.
    """

    head: Head
    task_C: Tensor
    sign_T: Tensor

    @classmethod
    def of(cls, heads: Sequence[Head], signs: Sequence[float] | None = None) -> Self:
        """Joins heads in order; each keeps its own logits, also if their scales differ."""
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
