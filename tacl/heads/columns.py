"""The heads of a model side by side: one column for each class of each task.

If the task is given, its own columns compete: P(class | x, task). If not, all columns compete in
one softmax: P(task | x) P(class | x, task), where P(task | x) is the sum over the task's columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from tacl.heads.head import Head, beside


@dataclass(frozen=True)
class Columns:
    """The columns of `heads`, by task, in their order."""

    heads: Mapping[str, Head]

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        return {task: head.classes for task, head in self.heads.items()}

    def narrow(self) -> Columns:
        """The columns that read the moved features alone."""
        return Columns({task: head.narrow() for task, head in self.heads.items()})

    def logits(self, features_BD: Tensor, plain_BE: Tensor | None = None) -> Tensor:
        """Logits of all columns, [B, C]. If `plain_BE` is given, each head reads its own views."""
        return torch.cat(list(self._logits(features_BD, plain_BE).values()), -1)

    def within(self, features_BD: Tensor, plain_BE: Tensor | None = None) -> dict[str, Tensor]:
        """P(class | x, task), [B, classes of the task]; the rows of each task sum to 1."""
        found = self._logits(features_BD, plain_BE)
        return {task: logits_BC.softmax(-1) for task, logits_BC in found.items()}

    def joint(self, features_BD: Tensor, plain_BE: Tensor | None = None) -> dict[str, Tensor]:
        """P(task | x) P(class | x, task), [B, classes of the task]; all tasks together sum to 1."""
        sizes = [len(head.classes) for head in self.heads.values()]
        shares_BC = self.logits(features_BD, plain_BE).softmax(-1)
        return dict(zip(self.heads, shares_BC.split(sizes, -1), strict=True))

    def _logits(self, features_BD: Tensor, plain_BE: Tensor | None) -> dict[str, Tensor]:
        """Logits by task; the views that heads share are computed and normalised only once."""
        heads, seen = self.heads.items(), dict.fromkeys(self.heads, features_BD)
        if plain_BE is not None and any(head.narrow_CD is not None for _, head in heads):
            seen_BV = beside(plain_BE, features_BD)
            seen = {task: head.own_views(seen_BV, features_BD) for task, head in heads}
        views = {view_BV.shape[-1]: view_BV for view_BV in seen.values()}
        units = {width: normalize(view_BV, dim=-1) for width, view_BV in views.items()}
        return {task: head.of_unit(units[seen[task].shape[-1]]) for task, head in heads}
